/* What a card is, how it fares, and the events of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "handles.h"
#include "state.h"

#define MOST_HANDLES 4096
#define XID_EVENT 8ULL

static struct handle handles[MOST_HANDLES];
static unsigned handle_count;
static unsigned initialized;
static unsigned char watched[MOST_CARDS];

struct handle *handle_of(enum kind kind, unsigned card, unsigned gpu_instance, unsigned compute_instance) {
    unsigned n;
    for (n = 0; n < handle_count; n++) {
        struct handle *h = &handles[n];
        if (h->kind == kind && h->card == card && h->gpu_instance == gpu_instance &&
            h->compute_instance == compute_instance)
            return h;
    }
    if (handle_count == MOST_HANDLES) return NULL;
    handles[handle_count] = (struct handle){kind, card, gpu_instance, compute_instance};
    return &handles[handle_count++];
}

int is_watched(unsigned card) { return watched[card]; }

static int text(char *to, unsigned length, const char *from) {
    if (strlen(from) >= length) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    ENTER("nvmlInitWithFlags");
    initialized++;
    return leave(SUCCESS, 0);
}

int nvmlShutdown(void) {
    if (!initialized) return UNINITIALIZED;
    initialized--;
    return SUCCESS;
}

const char *nvmlErrorString(int code) {
    switch (code) {
    case IN_USE: return "In use by another client";
    case INSUFFICIENT_RESOURCES: return "Insufficient Resources";
    case RESET_REQUIRED: return "GPU requires reset";
    default: return "Some error of the pretend driver";
    }
}

int nvmlSystemGetDriverVersion(char *version, unsigned length) {
    if (!initialized) return UNINITIALIZED;
    ENTER("nvmlSystemGetDriverVersion");
    return leave(text(version, length, world.driver), 0);
}

int nvmlSystemGetCudaDriverVersion(int *version) {
    ENTER("nvmlSystemGetCudaDriverVersion");
    *version = world.cuda;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    int code;
    if (!initialized) return UNINITIALIZED;
    if ((code = enter("nvmlDeviceGetCount_v2")) != SUCCESS) {
        if (code == DRIVER_NOT_LOADED) initialized = 0; /* it must be initialized again */
        return code;
    }
    *count = world.card_count;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct handle **device) {
    ENTER("nvmlDeviceGetHandleByIndex_v2");
    if (index >= world.card_count) return leave(INVALID_ARGUMENT, 0);
    *device = handle_of(CARD, index, 0, 0);
    return leave(SUCCESS, 0);
}

static unsigned long domain(const char *bus) { return strtoul(bus, NULL, 16); }

int nvmlDeviceGetHandleByPciBusId_v2(const char *bus, struct handle **device) {
    unsigned n;
    ENTER("nvmlDeviceGetHandleByPciBusId_v2");
    for (n = 0; n < world.card_count; n++) {
        const char *there = world.cards[n].bus;
        if (domain(there) == domain(bus) && !strcasecmp(strchr(there, ':'), strchr(bus, ':') ? strchr(bus, ':') : "")) {
            *device = handle_of(CARD, n, 0, 0);
            return leave(world.cards[n].lost ? GPU_IS_LOST : SUCCESS, 0);
        }
    }
    return leave(NOT_FOUND, 0);
}

int nvmlDeviceGetName(struct handle *device, char *name, unsigned length) {
    ENTER_CARD("nvmlDeviceGetName", device, card);
    return leave(text(name, length, card->name), 0);
}

int nvmlDeviceGetUUID(struct handle *device, char *uuid, unsigned length) {
    unsigned n;
    ENTER_CARD("nvmlDeviceGetUUID", device, card);
    if (device->kind == CARD) return leave(text(uuid, length, card->uuid), 0);
    for (n = 0; n < card->compute_count; n++) {
        const struct compute_instance *ci = &card->compute_instances[n];
        if (ci->gpu_instance == device->gpu_instance && ci->id == device->compute_instance)
            return leave(text(uuid, length, ci->uuid), 0);
    }
    return leave(NOT_FOUND, 0);
}

struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };

int nvmlDeviceGetPciInfo_v3(struct handle *device, struct pci *pci) {
    ENTER_CARD("nvmlDeviceGetPciInfo_v3", device, card);
    memset(pci, 0, sizeof *pci);
    pci->id = card->pci;
    snprintf(pci->bus_id, sizeof pci->bus_id, "%s", card->bus);
    return leave(SUCCESS, 0);
}

struct memory { unsigned long long total, free, used; };

int nvmlDeviceGetMemoryInfo(struct handle *device, struct memory *memory) {
    ENTER_CARD("nvmlDeviceGetMemoryInfo", device, card);
    *memory = (struct memory){card->memory, card->memory, 0};
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetCudaComputeCapability(struct handle *device, int *major, int *minor) {
    ENTER_CARD("nvmlDeviceGetCudaComputeCapability", device, card);
    *major = (int)card->compute_major;
    *minor = (int)card->compute_minor;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetMinorNumber(struct handle *device, unsigned *minor) {
    ENTER_CARD("nvmlDeviceGetMinorNumber", device, card);
    *minor = card->minor;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetTemperature(struct handle *device, int sensor, unsigned *temperature) {
    ENTER_CARD("nvmlDeviceGetTemperature", device, card);
    *temperature = card->temperature;
    return leave(sensor ? INVALID_ARGUMENT : SUCCESS, 0);
}

int nvmlDeviceGetTemperatureThreshold(struct handle *device, int which, unsigned *temperature) {
    ENTER_CARD("nvmlDeviceGetTemperatureThreshold", device, card);
    *temperature = card->slowdown;
    return leave(which == 1 && card->slowdown ? SUCCESS : NOT_SUPPORTED, 0);
}

int nvmlDeviceGetTotalEccErrors(struct handle *device, int type, int counter, unsigned long long *errors) {
    ENTER_CARD("nvmlDeviceGetTotalEccErrors", device, card);
    *errors = type == 1 && counter == 0 ? card->ecc : 0;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetRemappedRows(struct handle *device, unsigned *corrected, unsigned *not, unsigned *pending,
                              unsigned *failed) {
    ENTER_CARD("nvmlDeviceGetRemappedRows", device, card);
    *corrected = *not = *pending = 0;
    *failed = card->remap_failed;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetMaxPcieLinkGeneration(struct handle *device, unsigned *generation) {
    ENTER_CARD("nvmlDeviceGetMaxPcieLinkGeneration", device, card);
    *generation = card->compute_major >= 9 ? 5 : 4;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetMaxPcieLinkWidth(struct handle *device, unsigned *width) {
    ENTER_CARD("nvmlDeviceGetMaxPcieLinkWidth", device, card);
    *width = card->pci ? 16 : 1;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetPowerUsage(struct handle *device, unsigned *milliwatts) {
    ENTER_CARD("nvmlDeviceGetPowerUsage", device, card);
    *milliwatts = 60000 + card->temperature * 100;
    return leave(SUCCESS, 0);
}

struct utilization { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(struct handle *device, struct utilization *rates) {
    ENTER_CARD("nvmlDeviceGetUtilizationRates", device, card);
    *rates = (struct utilization){0, 0};
    return leave(card->mig_now ? NOT_SUPPORTED : SUCCESS, 0); /* as a real one in MIG mode */
}

int nvmlDeviceGetComputeMode(struct handle *device, unsigned *mode) {
    ENTER_CARD("nvmlDeviceGetComputeMode", device, card);
    *mode = card->mode;
    return leave(SUCCESS, 0);
}

int nvmlDeviceSetComputeMode(struct handle *device, unsigned mode) {
    ENTER_CARD("nvmlDeviceSetComputeMode", device, card);
    if (mode > 3) return leave(INVALID_ARGUMENT, 0);
    card->mode = mode;
    return leave(SUCCESS, 1);
}

int nvmlDeviceGetSupportedEventTypes(struct handle *device, unsigned long long *types) {
    ENTER_CARD("nvmlDeviceGetSupportedEventTypes", device, card);
    *types = card->pci ? XID_EVENT : 0;
    return leave(SUCCESS, 0);
}

int nvmlEventSetCreate(struct handle **set) {
    *set = handle_of(EVENT_SET, 0, 0, 0);
    return SUCCESS;
}

int nvmlEventSetFree(struct handle *set) {
    memset(watched, 0, sizeof watched);
    return set ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceRegisterEvents(struct handle *device, unsigned long long types, struct handle *set) {
    ENTER_CARD("nvmlDeviceRegisterEvents", device, card);
    if (!set || !(types & XID_EVENT) || !card->pci) return leave(INVALID_ARGUMENT, 0);
    watched[device->card] = 1;
    return leave(SUCCESS, 0);
}

struct event { struct handle *device; unsigned long long type, data; unsigned gpu_instance, compute_instance; };

static int next_event(struct event *event) {
    unsigned n;
    ENTER("nvmlEventSetWait_v2");
    for (n = 0; n < world.xid_count; n++) {
        struct xid xid = world.xids[n];
        if (xid.card >= world.card_count || !watched[xid.card]) continue;
        *event = (struct event){handle_of(CARD, xid.card, 0, 0), XID_EVENT, xid.number, ~0u, ~0u};
        world.xids[n] = world.xids[--world.xid_count];
        return leave(SUCCESS, 1);
    }
    return leave(TIMEOUT, 0);
}

int nvmlEventSetWait_v2(struct handle *set, struct event *event, unsigned milliseconds) {
    int code;
    if (!set) return INVALID_ARGUMENT;
    while ((code = next_event(event)) == TIMEOUT && milliseconds > 20) {
        usleep(20000);
        milliseconds -= 20;
    }
    return code;
}

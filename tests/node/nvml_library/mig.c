/* MIG: profiles and placements, GPU instances, and the compute instances in them. */
#include <stdio.h>
#include <string.h>

#include "handles.h"
#include "state.h"

struct placement { unsigned start, size; };

struct profile_info {
    unsigned version, id, p2p, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa;
    unsigned long long memory_mib;
    char name[96];
};

struct compute_profile_info {
    unsigned version, id, slices, instances, multiprocessors, copy, decoder, encoder, jpeg, ofa;
    char name[96];
};

struct gpu_instance_info { struct handle *device; unsigned id, profile; struct placement placement; };
struct compute_instance_info {
    struct handle *device, *gpu_instance;
    unsigned id, profile;
    struct placement placement;
};

static const unsigned slices_of[] = {1, 2, 3, 4, 7, 8, 6}; /* by number of the compute instance profile */

static struct profile *profile_by_id(struct card *card, unsigned id) {
    unsigned n;
    for (n = 0; n < card->profile_count; n++)
        if (card->profiles[n].id == id) return &card->profiles[n];
    return NULL;
}

static struct gpu_instance *find_gpu(struct card *card, unsigned id) {
    unsigned n;
    for (n = 0; n < card->gpu_count; n++)
        if (card->gpu_instances[n].id == id) return &card->gpu_instances[n];
    return NULL;
}

static struct compute_instance *find_compute(struct card *card, unsigned gpu_instance, unsigned id) {
    unsigned n;
    for (n = 0; n < card->compute_count; n++)
        if (card->compute_instances[n].gpu_instance == gpu_instance && card->compute_instances[n].id == id)
            return &card->compute_instances[n];
    return NULL;
}

int nvmlDeviceGetMigMode(struct handle *device, unsigned *now, unsigned *pending) {
    ENTER_CARD("nvmlDeviceGetMigMode", device, card);
    *now = card->mig_now;
    *pending = card->mig_pending;
    return leave(card->mig_capable ? SUCCESS : NOT_SUPPORTED, 0);
}

int nvmlDeviceSetMigMode(struct handle *device, unsigned mode, unsigned *activation) {
    ENTER_CARD("nvmlDeviceSetMigMode", device, card);
    if (!card->mig_capable) return leave(NOT_SUPPORTED, 0);
    if (card->gpu_count || is_watched(device->card)) return leave(IN_USE, 0);
    card->mig_pending = mode;
    if (!card->needs_reset) card->mig_now = mode;
    *activation = card->mig_now == mode ? SUCCESS : RESET_REQUIRED;
    return leave(SUCCESS, 1);
}

int nvmlDeviceGetGpuInstanceProfileInfoV(struct handle *device, unsigned number, struct profile_info *info) {
    unsigned n;
    ENTER_CARD("nvmlDeviceGetGpuInstanceProfileInfoV", device, card);
    if (info->version != (sizeof *info | 2u << 24)) return leave(VERSION_MISMATCH, 0);
    if (number >= MOST_PROFILES) return leave(INVALID_ARGUMENT, 0);
    for (n = 0; n < card->profile_count; n++) {
        const struct profile *p = &card->profiles[n];
        if (p->number != number) continue;
        *info = (struct profile_info){info->version, p->id, 0, p->slices, p->most, p->multiprocessors, p->copy,
                                      p->decoder, p->encoder, p->jpeg, p->ofa, p->memory_mib, ""};
        memcpy(info->name, p->name, sizeof info->name);
        return leave(SUCCESS, 0);
    }
    return leave(NOT_SUPPORTED, 0);
}

int nvmlDeviceGetGpuInstancePossiblePlacements_v2(struct handle *device, unsigned id, struct placement *places,
                                                  unsigned *count) {
    unsigned n;
    ENTER_CARD("nvmlDeviceGetGpuInstancePossiblePlacements_v2", device, card);
    const struct profile *p = profile_by_id(card, id);
    if (!p) return leave(NOT_SUPPORTED, 0);
    if (places && *count < p->start_count) return leave(INSUFFICIENT_SIZE, 0);
    for (n = 0; places && n < p->start_count; n++) places[n] = (struct placement){p->starts[n], p->size};
    *count = p->start_count;
    return leave(SUCCESS, 0);
}

/* As strict as a driver: a valid and free placement, and enough compute slices. */
static int has_room(struct card *card, const struct profile *p, const struct placement *place) {
    unsigned n, alike = 0, used = 0, most = 0, begins = 0;
    for (n = 0; n < p->start_count; n++) begins |= p->starts[n] == place->start;
    if (!begins || place->size != p->size) return INVALID_ARGUMENT;
    for (n = 0; n < card->profile_count; n++)
        if (card->profiles[n].slices > most) most = card->profiles[n].slices;
    for (n = 0; n < card->gpu_count; n++) {
        const struct gpu_instance *gi = &card->gpu_instances[n];
        if (gi->start < place->start + place->size && place->start < gi->start + gi->size)
            return INSUFFICIENT_RESOURCES;
        alike += gi->profile == p->id;
        used += profile_by_id(card, gi->profile)->slices;
    }
    if (card->gpu_count == MOST_INSTANCES || alike >= p->most || used + p->slices > most)
        return INSUFFICIENT_RESOURCES;
    return SUCCESS;
}

int nvmlDeviceCreateGpuInstanceWithPlacement(struct handle *device, unsigned id, const struct placement *place,
                                             struct handle **made) {
    unsigned number = 1;
    ENTER_CARD("nvmlDeviceCreateGpuInstanceWithPlacement", device, card);
    const struct profile *p = profile_by_id(card, id);
    if (!card->mig_now || !p) return leave(NOT_SUPPORTED, 0);
    int code = has_room(card, p, place);
    if (code != SUCCESS) return leave(code, 0);
    while (find_gpu(card, number)) number++;
    card->gpu_instances[card->gpu_count++] = (struct gpu_instance){number, id, place->start, place->size};
    *made = handle_of(GPU_INSTANCE, device->card, number, 0);
    return leave(SUCCESS, 1);
}

int nvmlGpuInstanceDestroy(struct handle *instance) {
    unsigned n;
    ENTER_CARD("nvmlGpuInstanceDestroy", instance, card);
    struct gpu_instance *gi = find_gpu(card, instance->gpu_instance);
    if (!gi) return leave(NOT_FOUND, 0);
    for (n = 0; n < card->compute_count; n++)
        if (card->compute_instances[n].gpu_instance == gi->id) return leave(IN_USE, 0);
    *gi = card->gpu_instances[--card->gpu_count];
    return leave(SUCCESS, 1);
}

int nvmlDeviceGetGpuInstances(struct handle *device, unsigned id, struct handle **instances, unsigned *count) {
    unsigned n, found = 0;
    ENTER_CARD("nvmlDeviceGetGpuInstances", device, card);
    for (n = 0; n < card->gpu_count; n++)
        if (card->gpu_instances[n].profile == id)
            instances[found++] = handle_of(GPU_INSTANCE, device->card, card->gpu_instances[n].id, 0);
    *count = found;
    return leave(card->mig_now ? SUCCESS : NOT_SUPPORTED, 0);
}

int nvmlDeviceGetGpuInstanceById(struct handle *device, unsigned id, struct handle **instance) {
    ENTER_CARD("nvmlDeviceGetGpuInstanceById", device, card);
    *instance = handle_of(GPU_INSTANCE, device->card, id, 0);
    return leave(find_gpu(card, id) ? SUCCESS : NOT_FOUND, 0);
}

int nvmlGpuInstanceGetInfo(struct handle *instance, struct gpu_instance_info *info) {
    ENTER_CARD("nvmlGpuInstanceGetInfo", instance, card);
    const struct gpu_instance *gi = find_gpu(card, instance->gpu_instance);
    if (!gi) return leave(NOT_FOUND, 0);
    *info = (struct gpu_instance_info){
        handle_of(CARD, instance->card, 0, 0), gi->id, gi->profile, {gi->start, gi->size}};
    return leave(SUCCESS, 0);
}

int nvmlGpuInstanceGetComputeInstanceProfileInfoV(struct handle *instance, unsigned number, unsigned engines,
                                                  struct compute_profile_info *info) {
    ENTER_CARD("nvmlGpuInstanceGetComputeInstanceProfileInfoV", instance, card);
    const struct gpu_instance *gi = find_gpu(card, instance->gpu_instance);
    if (info->version != (sizeof *info | 2u << 24)) return leave(VERSION_MISMATCH, 0);
    if (!gi || engines) return leave(INVALID_ARGUMENT, 0);
    const struct profile *p = profile_by_id(card, gi->profile);
    if (number >= sizeof slices_of / sizeof *slices_of || slices_of[number] > p->slices)
        return leave(NOT_SUPPORTED, 0);
    unsigned version = info->version, slices = slices_of[number];
    memset(info, 0, sizeof *info);
    info->version = version;
    info->id = number;
    info->slices = slices;
    info->instances = p->slices / slices;
    info->multiprocessors = p->multiprocessors * slices / p->slices;
    return leave(SUCCESS, 0);
}

int nvmlGpuInstanceCreateComputeInstance(struct handle *instance, unsigned id, struct handle **made) {
    unsigned n, used = 0, number = 0;
    ENTER_CARD("nvmlGpuInstanceCreateComputeInstance", instance, card);
    const struct gpu_instance *gi = find_gpu(card, instance->gpu_instance);
    if (!gi || id >= sizeof slices_of / sizeof *slices_of) return leave(INVALID_ARGUMENT, 0);
    for (n = 0; n < card->compute_count; n++)
        if (card->compute_instances[n].gpu_instance == gi->id) used += card->compute_instances[n].size;
    if (used + slices_of[id] > profile_by_id(card, gi->profile)->slices || card->compute_count == MOST_INSTANCES)
        return leave(INSUFFICIENT_RESOURCES, 0);
    while (find_compute(card, gi->id, number)) number++;
    struct compute_instance ci = {gi->id, number, id, slices_of[id], ""};
    snprintf(ci.uuid, sizeof ci.uuid, "MIG-%.60s-%u", card->uuid + 4, ++world.made);
    card->compute_instances[card->compute_count++] = ci;
    *made = handle_of(COMPUTE_INSTANCE, instance->card, gi->id, number);
    return leave(SUCCESS, 1);
}

int nvmlComputeInstanceDestroy(struct handle *instance) {
    ENTER_CARD("nvmlComputeInstanceDestroy", instance, card);
    struct compute_instance *ci = find_compute(card, instance->gpu_instance, instance->compute_instance);
    if (!ci) return leave(NOT_FOUND, 0);
    *ci = card->compute_instances[--card->compute_count];
    return leave(SUCCESS, 1);
}

int nvmlGpuInstanceGetComputeInstances(struct handle *instance, unsigned id, struct handle **instances,
                                       unsigned *count) {
    unsigned n, found = 0;
    ENTER_CARD("nvmlGpuInstanceGetComputeInstances", instance, card);
    for (n = 0; n < card->compute_count; n++) {
        const struct compute_instance *ci = &card->compute_instances[n];
        if (ci->gpu_instance == instance->gpu_instance && ci->profile == id)
            instances[found++] = handle_of(COMPUTE_INSTANCE, instance->card, ci->gpu_instance, ci->id);
    }
    *count = found;
    return leave(SUCCESS, 0);
}

int nvmlGpuInstanceGetComputeInstanceById(struct handle *instance, unsigned id, struct handle **found) {
    ENTER_CARD("nvmlGpuInstanceGetComputeInstanceById", instance, card);
    *found = handle_of(COMPUTE_INSTANCE, instance->card, instance->gpu_instance, id);
    return leave(find_compute(card, instance->gpu_instance, id) ? SUCCESS : NOT_FOUND, 0);
}

int nvmlComputeInstanceGetInfo_v2(struct handle *instance, struct compute_instance_info *info) {
    ENTER_CARD("nvmlComputeInstanceGetInfo_v2", instance, card);
    const struct compute_instance *ci = find_compute(card, instance->gpu_instance, instance->compute_instance);
    if (!ci) return leave(NOT_FOUND, 0);
    *info = (struct compute_instance_info){handle_of(CARD, instance->card, 0, 0),
                                           handle_of(GPU_INSTANCE, instance->card, ci->gpu_instance, 0),
                                           ci->id, ci->profile, {0, ci->size}};
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetMaxMigDeviceCount(struct handle *device, unsigned *count) {
    ENTER_CARD("nvmlDeviceGetMaxMigDeviceCount", device, card);
    *count = card->mig_capable ? 7 : 0;
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetMigDeviceHandleByIndex(struct handle *device, unsigned index, struct handle **mig) {
    ENTER_CARD("nvmlDeviceGetMigDeviceHandleByIndex", device, card);
    if (index >= card->compute_count) return leave(NOT_FOUND, 0);
    const struct compute_instance *ci = &card->compute_instances[index];
    *mig = handle_of(MIG_DEVICE, device->card, ci->gpu_instance, ci->id);
    return leave(SUCCESS, 0);
}

int nvmlDeviceGetGpuInstanceId(struct handle *mig, unsigned *id) {
    ENTER_CARD("nvmlDeviceGetGpuInstanceId", mig, card);
    *id = mig->gpu_instance;
    return leave(card->mig_now && mig->kind == MIG_DEVICE ? SUCCESS : INVALID_ARGUMENT, 0);
}

int nvmlDeviceGetComputeInstanceId(struct handle *mig, unsigned *id) {
    ENTER_CARD("nvmlDeviceGetComputeInstanceId", mig, card);
    *id = mig->compute_instance;
    return leave(card->mig_now && mig->kind == MIG_DEVICE ? SUCCESS : INVALID_ARGUMENT, 0);
}

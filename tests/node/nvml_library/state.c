/* The file of cards: reading, writing, and the faults a test has put into it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#include <pthread.h>

#include "state.h"

struct state world;

static pthread_mutex_t one_thread = PTHREAD_MUTEX_INITIALIZER;
static int lock_file = -1;

static const char *path(void) { return getenv("CROUPIER_TEST_NVML_CARDS"); }

static void read_profile(struct card *card, const char *rest) {
    struct profile *p = &card->profiles[card->profile_count];
    char starts[64], *one, *left;
    int at = 0;
    if (sscanf(rest, "%u %u %u %u %u %u %u %u %u %u %llu %u %63s %n", &p->number, &p->id, &p->slices, &p->most,
               &p->multiprocessors, &p->copy, &p->decoder, &p->encoder, &p->jpeg, &p->ofa, &p->memory_mib,
               &p->size, starts, &at) < 13)
        return;
    p->start_count = 0;
    for (one = strtok_r(starts, ",", &left); one && p->start_count < MOST_STARTS; one = strtok_r(NULL, ",", &left))
        p->starts[p->start_count++] = (unsigned)atoi(one);
    snprintf(p->name, sizeof p->name, "%s", rest + at);
    card->profile_count++;
}

static void read_card(struct card *card, const char *key, const char *rest) {
    if (!strcmp(key, "name")) snprintf(card->name, sizeof card->name, "%s", rest);
    else if (!strcmp(key, "uuid")) snprintf(card->uuid, sizeof card->uuid, "%s", rest);
    else if (!strcmp(key, "bus")) snprintf(card->bus, sizeof card->bus, "%s", rest);
    else if (!strcmp(key, "pci")) sscanf(rest, "%x", &card->pci);
    else if (!strcmp(key, "memory")) sscanf(rest, "%llu", &card->memory);
    else if (!strcmp(key, "compute")) sscanf(rest, "%u %u", &card->compute_major, &card->compute_minor);
    else if (!strcmp(key, "minor")) sscanf(rest, "%u", &card->minor);
    else if (!strcmp(key, "mig"))
        sscanf(rest, "%u %u %u %u", &card->mig_capable, &card->mig_now, &card->mig_pending, &card->needs_reset);
    else if (!strcmp(key, "lost")) sscanf(rest, "%u", &card->lost);
    else if (!strcmp(key, "temperature")) sscanf(rest, "%u %u", &card->temperature, &card->slowdown);
    else if (!strcmp(key, "mode")) sscanf(rest, "%u", &card->mode);
    else if (!strcmp(key, "ecc")) sscanf(rest, "%llu %u", &card->ecc, &card->remap_failed);
    else if (!strcmp(key, "profile") && card->profile_count < MOST_PROFILES) read_profile(card, rest);
    else if (!strcmp(key, "process") && card->process_count < MOST_PROCESSES) {
        struct process *process = &card->processes[card->process_count++];
        sscanf(rest, "%u %c %u", &process->pid, &process->kind, &process->gpu_instance);
    } else if (!strcmp(key, "gi") && card->gpu_count < MOST_INSTANCES) {
        struct gpu_instance *gi = &card->gpu_instances[card->gpu_count++];
        sscanf(rest, "%u %u %u %u", &gi->id, &gi->profile, &gi->start, &gi->size);
    } else if (!strcmp(key, "ci") && card->compute_count < MOST_INSTANCES) {
        struct compute_instance *ci = &card->compute_instances[card->compute_count++];
        sscanf(rest, "%u %u %u %u %95s", &ci->gpu_instance, &ci->id, &ci->profile, &ci->size, ci->uuid);
    }
}

static int read_world(void) {
    FILE *file = path() ? fopen(path(), "r") : NULL;
    char line[512], key[64];
    int at;
    if (!file) return DRIVER_NOT_LOADED;
    memset(&world, 0, sizeof world);
    while (fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        at = 0;
        if (sscanf(line, "%63s %n", key, &at) < 1) continue;
        const char *rest = line + at;
        if (!strcmp(key, "driver")) snprintf(world.driver, sizeof world.driver, "%s", rest);
        else if (!strcmp(key, "cuda")) world.cuda = atoi(rest);
        else if (!strcmp(key, "made")) world.made = (unsigned)atoi(rest);
        else if (!strcmp(key, "card") && world.card_count < MOST_CARDS) world.card_count++;
        else if (!strcmp(key, "fault") && world.fault_count < MOST_FAULTS) {
            struct fault *fault = &world.faults[world.fault_count++];
            sscanf(rest, "%63s %u %u %u", fault->call, &fault->code, &fault->count, &fault->milliseconds);
        } else if (!strcmp(key, "xid") && world.xid_count < MOST_FAULTS) {
            struct xid *xid = &world.xids[world.xid_count++];
            sscanf(rest, "%u %u", &xid->card, &xid->number);
        } else if (world.card_count) read_card(&world.cards[world.card_count - 1], key, rest);
    }
    fclose(file);
    return SUCCESS;
}

static void write_card(FILE *file, const struct card *card) {
    unsigned n, s;
    fprintf(file, "card\nname %s\nuuid %s\nbus %s\npci %08x\nmemory %llu\ncompute %u %u\nminor %u\n", card->name,
            card->uuid, card->bus, card->pci, card->memory, card->compute_major, card->compute_minor, card->minor);
    fprintf(file, "mig %u %u %u %u\nlost %u\ntemperature %u %u\necc %llu %u\n", card->mig_capable,
            card->mig_now, card->mig_pending, card->needs_reset, card->lost, card->temperature, card->slowdown,
            card->ecc, card->remap_failed);
    fprintf(file, "mode %u\n", card->mode);
    for (n = 0; n < card->profile_count; n++) {
        const struct profile *p = &card->profiles[n];
        fprintf(file, "profile %u %u %u %u %u %u %u %u %u %u %llu %u ", p->number, p->id, p->slices, p->most,
                p->multiprocessors, p->copy, p->decoder, p->encoder, p->jpeg, p->ofa, p->memory_mib, p->size);
        for (s = 0; s < p->start_count; s++) fprintf(file, s ? ",%u" : "%u", p->starts[s]);
        fprintf(file, " %s\n", p->name);
    }
    for (n = 0; n < card->gpu_count; n++) {
        const struct gpu_instance *gi = &card->gpu_instances[n];
        fprintf(file, "gi %u %u %u %u\n", gi->id, gi->profile, gi->start, gi->size);
    }
    for (n = 0; n < card->process_count; n++)
        fprintf(file, "process %u %c %u\n", card->processes[n].pid, card->processes[n].kind,
                card->processes[n].gpu_instance);
    for (n = 0; n < card->compute_count; n++) {
        const struct compute_instance *ci = &card->compute_instances[n];
        fprintf(file, "ci %u %u %u %u %s\n", ci->gpu_instance, ci->id, ci->profile, ci->size, ci->uuid);
    }
}

static void write_world(void) {
    char draft[4096];
    unsigned n;
    FILE *file;
    snprintf(draft, sizeof draft, "%s.draft", path());
    if (!(file = fopen(draft, "w"))) return;
    fprintf(file, "driver %s\ncuda %d\nmade %u\n", world.driver, world.cuda, world.made);
    for (n = 0; n < world.fault_count; n++) {
        const struct fault *fault = &world.faults[n];
        fprintf(file, "fault %s %u %u %u\n", fault->call, fault->code, fault->count, fault->milliseconds);
    }
    for (n = 0; n < world.xid_count; n++)
        fprintf(file, "xid %u %u\n", world.xids[n].card, world.xids[n].number);
    for (n = 0; n < world.card_count; n++) write_card(file, &world.cards[n]);
    fclose(file);
    rename(draft, path());
}

static int lock(void) {
    char name[4096];
    pthread_mutex_lock(&one_thread);
    snprintf(name, sizeof name, "%s.lock", path() ? path() : "/nowhere");
    lock_file = open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (lock_file >= 0) flock(lock_file, LOCK_EX);
    return read_world();
}

static void unlock(void) {
    if (lock_file >= 0) close(lock_file);
    lock_file = -1;
    pthread_mutex_unlock(&one_thread);
}

int leave(int code, int changed) {
    if (changed) write_world();
    unlock();
    return code;
}

/* A fault is for so many calls of one name: each is slow, and fails if it has a code. */
int enter(const char *call) {
    int code = lock();
    unsigned n;
    if (code != SUCCESS) { unlock(); return code; }
    for (n = 0; n < world.fault_count; n++) {
        struct fault fault = world.faults[n];
        if (strcmp(fault.call, call) || !fault.count) continue;
        world.faults[n].count--;
        leave(SUCCESS, 1);
        if (fault.milliseconds) usleep(fault.milliseconds * 1000);
        if (fault.code) return (int)fault.code;
        if ((code = lock()) != SUCCESS) unlock();
        return code;
    }
    return SUCCESS;
}

/* The processes on a card: a line `process PID KIND GPU_INSTANCE` each; KIND is C, G or M (a client of MPS).
 *
 * In MIG mode the card itself lists none, and each MIG device those of its GPU instance.
 */
#include <stddef.h>

#include "handles.h"
#include "state.h"

struct process_info { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; };

static int listed(struct handle *device, const struct card *card, const struct process *process, char kind) {
    if (process->kind != kind) return 0;
    if (!card->mig_now) return device->kind == CARD;
    return device->kind == MIG_DEVICE && device->gpu_instance == process->gpu_instance;
}

static int list(struct handle *device, const struct card *card, char kind, unsigned *room, struct process_info *to) {
    unsigned n, count = 0;
    for (n = 0; n < card->process_count; n++)
        if (listed(device, card, &card->processes[n], kind)) count++;
    if (count > *room || (count && !to)) {
        *room = count;
        return INSUFFICIENT_SIZE;
    }
    *room = 0;
    for (n = 0; n < card->process_count; n++)
        if (listed(device, card, &card->processes[n], kind))
            to[(*room)++] = (struct process_info){card->processes[n].pid, 1, ~0u, ~0u};
    return SUCCESS;
}

int nvmlDeviceGetComputeRunningProcesses_v3(struct handle *device, unsigned *room, struct process_info *to) {
    ENTER_CARD("nvmlDeviceGetComputeRunningProcesses_v3", device, card);
    return leave(list(device, card, 'C', room, to), 0);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(struct handle *device, unsigned *room, struct process_info *to) {
    ENTER_CARD("nvmlDeviceGetGraphicsRunningProcesses_v3", device, card);
    return leave(list(device, card, 'G', room, to), 0);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(struct handle *device, unsigned *room, struct process_info *to) {
    ENTER_CARD("nvmlDeviceGetMPSComputeRunningProcesses_v3", device, card);
    return leave(list(device, card, 'M', room, to), 0);
}

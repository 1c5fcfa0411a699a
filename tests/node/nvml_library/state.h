/* A pretend driver's library for tests: the calls our adapter makes, over cards that are lines of a text file.
 *
 * The file is read at every call and written after every change, under a lock, so that a test may change it at
 * any time and a process that dies leaves what a driver would keep. tests/node/nvml_env.py writes it.
 */
#ifndef PRETEND_NVML_STATE_H
#define PRETEND_NVML_STATE_H

#define MOST_CARDS 32
#define MOST_PROFILES 18
#define MOST_INSTANCES 16
#define MOST_FAULTS 16
#define MOST_STARTS 8
#define MOST_PROCESSES 32

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9, TIMEOUT = 10, GPU_IS_LOST = 15, RESET_REQUIRED = 16, IN_USE = 19,
    INSUFFICIENT_RESOURCES = 23, VERSION_MISMATCH = 25, UNKNOWN = 999
};

struct profile {
    unsigned number, id, slices, most, multiprocessors, copy, decoder, encoder, jpeg, ofa;
    unsigned long long memory_mib;
    unsigned size, starts[MOST_STARTS], start_count;
    char name[96];
};

struct gpu_instance { unsigned id, profile, start, size; };
struct process { unsigned pid, gpu_instance; char kind; };
struct compute_instance { unsigned gpu_instance, id, profile, size; char uuid[96]; };

struct card {
    char name[96], uuid[96], bus[32];
    unsigned pci, compute_major, compute_minor, minor, mig_capable, mig_now, mig_pending, needs_reset, lost;
    unsigned temperature, slowdown, remap_failed, mode;
    unsigned long long memory, ecc;
    struct profile profiles[MOST_PROFILES];
    struct gpu_instance gpu_instances[MOST_INSTANCES];
    struct compute_instance compute_instances[MOST_INSTANCES];
    struct process processes[MOST_PROCESSES];
    unsigned profile_count, gpu_count, compute_count, process_count;
};

struct fault { char call[64]; unsigned code, count, milliseconds; };
struct xid { unsigned card, number; };

struct state {
    char driver[80];
    int cuda;
    unsigned made;
    struct card cards[MOST_CARDS];
    struct fault faults[MOST_FAULTS];
    struct xid xids[MOST_FAULTS];
    unsigned card_count, fault_count, xid_count;
};

extern struct state world;

int enter(const char *call);          /* locks and reads; SUCCESS, or what the call must return */
int leave(int code, int changed);     /* writes what changed and unlocks; returns `code` */
#endif

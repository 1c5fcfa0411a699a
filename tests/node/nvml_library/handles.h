/* What a caller holds: where to find a card, a MIG device or an instance in the world at the next call. */
#ifndef PRETEND_NVML_HANDLES_H
#define PRETEND_NVML_HANDLES_H

enum kind { CARD = 1, MIG_DEVICE, GPU_INSTANCE, COMPUTE_INSTANCE, EVENT_SET };

struct handle { enum kind kind; unsigned card, gpu_instance, compute_instance; };

struct handle *handle_of(enum kind kind, unsigned card, unsigned gpu_instance, unsigned compute_instance);

/* Is anybody in this process told of what happens to the card? */
int is_watched(unsigned card);

#define ENTER(name)                              \
    do {                                         \
        int entered = enter(name);               \
        if (entered != SUCCESS) return entered;  \
    } while (0)

#define ENTER_CARD(name, handle, card)                                              \
    ENTER(name);                                                                    \
    if (!(handle) || (handle)->card >= world.card_count) return leave(NOT_FOUND, 0); \
    struct card *card = &world.cards[(handle)->card];                               \
    if (card->lost) return leave(GPU_IS_LOST, 0)

#endif

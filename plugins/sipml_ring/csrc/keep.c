/* Changing as little as possible against the previous plan: a wavelength that does not change stays lit. */
#include <stdlib.h>
#include <string.h>

#include "net.h"

void net_keep(net_t *net, const int32_t *target)
{
    net_clear(net);
    for (int32_t row = 0; row < net->rows; row++)
        for (int d = 0; d < DIRECTIONS; d++) {
            const uint64_t *before = mask_of(net, net->before, row, d);
            int32_t left = target[DIRECTIONS * row + d];
            for (int32_t w = 0; w < net->words && left > 0; w++)
                for (uint64_t bits = before[w]; bits && left > 0; bits &= bits - 1, left--)
                    net_take(net, row, d, 64 * w + lowest_bit(bits));
        }
}

/* shared[a * colours + b]: circuits that hold index a now and held b before, same pair and direction. */
static void count_shared(const net_t *net, int d, int32_t *shared)
{
    int32_t colours = net->ring->wavelengths[d];
    memset(shared, 0, sizeof(int32_t) * (size_t)colours * (size_t)colours);
    for (int32_t row = 0; row < net->rows; row++) {
        const uint64_t *now = mask_of(net, net->held, row, d), *before = mask_of(net, net->before, row, d);
        for (int32_t w = 0; w < net->words; w++)
            for (uint64_t a = now[w]; a; a &= a - 1)
                for (int32_t v = 0; v < net->words; v++)
                    for (uint64_t b = before[v]; b; b &= b - 1)
                        shared[(64 * w + lowest_bit(a)) * colours + 64 * v + lowest_bit(b)]++;
    }
}

typedef struct {
    int32_t shared, now, before;
} match_t;

static int by_shared(const void *left, const void *right)
{
    const match_t *a = left, *b = right;
    if (a->shared != b->shared) return a->shared > b->shared ? -1 : 1;
    if (a->now != b->now) return a->now < b->now ? -1 : 1;
    return (a->before > b->before) - (a->before < b->before);
}

/* Greedy matching of indices now to indices before, most shared circuits first; the rest in order. */
static int match(const net_t *net, int d, int32_t *becomes)
{
    int32_t colours = net->ring->wavelengths[d], many = 0, next = 0;
    size_t cells = (size_t)colours * (size_t)colours;
    int32_t *shared = malloc(sizeof(int32_t) * (cells + 1));
    match_t *matches = malloc(sizeof(match_t) * (cells + 1));
    char *used = calloc((size_t)colours + 1, 1);
    int status = shared && matches && used ? SIPRING_OK : SIPRING_EMEMORY;
    if (status != SIPRING_OK) goto done;
    count_shared(net, d, shared);
    for (int32_t a = 0; a < colours; a++) {
        becomes[a] = -1;
        for (int32_t b = 0; b < colours; b++)
            if (shared[a * colours + b] > 0) matches[many++] = (match_t){shared[a * colours + b], a, b};
    }
    qsort(matches, (size_t)many, sizeof *matches, by_shared);
    for (int32_t k = 0; k < many; k++)
        if (becomes[matches[k].now] < 0 && !used[matches[k].before]) {
            becomes[matches[k].now] = matches[k].before;
            used[matches[k].before] = 1;
        }
    for (int32_t a = 0; a < colours; a++) {
        if (becomes[a] >= 0) continue;
        while (used[next]) next++;
        becomes[a] = next;
        used[next] = 1;
    }
done:
    free(shared);
    free(matches);
    free(used);
    return status;
}

int net_relabel(net_t *net)
{
    size_t masks = (size_t)net->rows * DIRECTIONS * (size_t)net->words;
    int32_t becomes[DIRECTIONS][SIPRING_MAX_WAVELENGTHS];
    uint64_t *now;
    if (!net->past) return SIPRING_OK;
    for (int d = 0; d < DIRECTIONS; d++)
        if (match(net, d, becomes[d]) != SIPRING_OK) return SIPRING_EMEMORY;
    now = malloc(sizeof(uint64_t) * (masks + 1));
    if (!now) return SIPRING_EMEMORY;
    memcpy(now, net->held, sizeof(uint64_t) * masks);
    net_clear(net);
    for (int32_t row = 0; row < net->rows; row++)
        for (int d = 0; d < DIRECTIONS; d++)
            for (int32_t w = 0; w < net->words; w++)
                for (uint64_t bits = mask_of(net, now, row, d)[w]; bits; bits &= bits - 1)
                    net_take(net, row, d, becomes[d][64 * w + lowest_bit(bits)]);
    free(now);
    return SIPRING_OK;
}

static void hold(net_t *net, uint64_t *idle, int32_t row, int d, int32_t index)
{
    mask_of(net, net->held, row, d)[index >> 6] |= UINT64_C(1) << (index & 63);
    idle[index >> 6] &= ~(UINT64_C(1) << (index & 63));
}

/* A GPU on the way may convert, so that only the sender's own indices must differ: first those of the past, then the
 * lowest. There are enough: all circuits that leave a GPU in one direction cross the same segment. */
int net_assign_senders(net_t *net)
{
    size_t words = (size_t)net->words;
    uint64_t *idle = malloc(sizeof(uint64_t) * (size_t)net->n * words);
    if (!idle) return SIPRING_EMEMORY;
    memset(net->held, 0, sizeof(uint64_t) * (size_t)net->rows * DIRECTIONS * words);
    for (int d = 0; d < DIRECTIONS; d++) {
        memset(idle, 0xff, sizeof(uint64_t) * (size_t)net->n * words);
        for (int past = net->past; past >= 0; past--)
            for (int32_t row = 0; row < net->rows; row++) {
                const row_t *r = &net->row[row];
                const uint64_t *before = past ? mask_of(net, net->before, row, d) : NULL, *held = mask_of(net, net->held, row, d);
                uint64_t *mine = idle + (size_t)r->src * words;
                int32_t left = r->count[d];
                for (size_t w = 0; w < words; w++) left -= count_bits(held[w]);
                for (int32_t w = 0; w < net->words && left > 0; w++)
                    for (uint64_t bits = past ? before[w] : mine[w]; bits && left > 0; bits &= bits - 1, left--)
                        hold(net, mine, row, d, 64 * w + lowest_bit(bits));
            }
    }
    free(idle);
    return SIPRING_OK;
}

static void restore_row(net_t *net, int32_t row, int d)
{
    const uint64_t *before = mask_of(net, net->before, row, d);
    for (int32_t w = 0; w < net->words; w++)
        for (uint64_t bits = before[w]; bits; bits &= bits - 1) {
            int32_t index = 64 * w + lowest_bit(bits);
            if (!net->continuous) net_add(net, row, d);
            else if (net_idle(net, row, d, index)) net_take(net, row, d, index);
        }
}

void net_restore(net_t *net)
{
    for (int32_t row = 0; row < net->rows; row++)
        for (int d = 0; d < DIRECTIONS && net->row[row].asked < 0; d++) restore_row(net, row, d);
}

/* The same index from end to end: colouring circular arcs, one direction at a time.
 *
 * Cut the ring at a node. Circuits that pass it take one colour each; such a colour must be free again before its
 * owner starts, further round: its deadline. Sweep from the cut; every other circuit takes the idle colour with the
 * earliest deadline that it meets (longest circuits first). Colours are numbered by deadline, so that this is the
 * lowest idle one from a known number on. Repeated for the least loaded cuts until nothing is left out. */
#include <stdlib.h>
#include <string.h>

#include "net.h"

enum { CUTS = 16 };

typedef struct {
    int32_t *want;              /* [rows] */
    int32_t *first_meeting;     /* [n + 1] lowest colour whose deadline is not before a position */
    int32_t *released, *next;   /* [n] and [wavelengths] lists: colours that end at a position */
    uint64_t *idle;             /* [words] */
    int32_t *load, *cut;        /* [n] */
} sweep_t;

static int32_t take_from(uint64_t *idle, int32_t words, int32_t first)
{
    for (int32_t w = first >> 6; w < words; w++) {
        uint64_t bits = w == first >> 6 ? idle[w] & (UINT64_MAX << (first & 63)) : idle[w];
        if (bits == 0) continue;
        idle[w] ^= bits & (~bits + 1);
        return 64 * w + lowest_bit(bits);
    }
    return -1;
}

static void release_at(sweep_t *w, int32_t colour, int32_t position)
{
    w->next[colour] = w->released[position];
    w->released[position] = colour;
}

/* Circuits that pass the cut, by their start: colours 0, 1, ... Returns those without one. */
static int64_t cross(net_t *net, sweep_t *w, int d, int32_t cut, int commit)
{
    int32_t n = net->n, colours = net->ring->wavelengths[d], used = 0;
    int64_t left_out = 0;
    for (int32_t position = 0; position < n; position++) {
        int32_t u = (cut + position) % n;
        w->first_meeting[position] = used;
        for (int32_t k = net->from[d][u]; k < net->from[d][u + 1]; k++) {
            int32_t row = net->by_start[d][k], end = position + net->row[row].hops[d];
            if (end <= n) break; /* sorted by falling length */
            for (int32_t x = 0; x < w->want[row]; x++) {
                if (used == colours) {
                    left_out++;
                    continue;
                }
                if (commit) net_take(net, row, d, used);
                w->idle[used >> 6] &= ~(UINT64_C(1) << (used & 63));
                release_at(w, used++, end - n);
            }
        }
    }
    w->first_meeting[n] = used;
    return left_out;
}

static int64_t sweep(net_t *net, sweep_t *w, int d, int32_t cut, int commit)
{
    int32_t n = net->n, colours = net->ring->wavelengths[d];
    for (int32_t s = 0; s < n; s++) w->released[s] = -1;
    memset(w->idle, 0, sizeof(uint64_t) * (size_t)net->words);
    for (int32_t c = 0; c < colours; c++) w->idle[c >> 6] |= UINT64_C(1) << (c & 63);
    int64_t left_out = cross(net, w, d, cut, commit);
    for (int32_t position = 0; position < n; position++) {
        int32_t u = (cut + position) % n;
        for (int32_t c = w->released[position]; c >= 0; c = w->next[c]) w->idle[c >> 6] |= UINT64_C(1) << (c & 63);
        for (int32_t k = net->from[d][u]; k < net->from[d][u + 1]; k++) {
            int32_t row = net->by_start[d][k], end = position + net->row[row].hops[d];
            if (end > n) continue;
            for (int32_t x = 0; x < w->want[row]; x++) {
                int32_t c = take_from(w->idle, net->words, w->first_meeting[end]);
                if (c < 0) {
                    left_out += w->want[row] - x;
                    break;
                }
                if (commit) net_take(net, row, d, c);
                if (end < n) release_at(w, c, end);
            }
        }
    }
    return left_out;
}

/* The nodes after the least loaded segments, least first; returns how many. */
static int32_t cuts(const net_t *net, sweep_t *w, int d)
{
    int32_t n = net->n, found = 0, running = 0;
    memset(w->load, 0, sizeof(int32_t) * (size_t)n);
    for (int32_t row = 0; row < net->rows; row++) { /* load: by how much it changes from the segment before */
        int32_t start = net->row[row].start[d], end = start + net->row[row].hops[d], want = w->want[row];
        if (want == 0) continue;
        w->load[start] += want;
        if (end < n) w->load[end] -= want;
        else if (end > n) w->load[end - n] -= want;
        if (end > n) running += want; /* it covers segment 0 as well */
    }
    for (int32_t s = 0; s < n; s++) w->load[s] = running += w->load[s];
    for (int32_t s = 0; s < n; s++) {
        int32_t at = found < CUTS ? found++ : CUTS;
        while (at > 0 && w->load[(w->cut[at - 1] + n - 1) % n] > w->load[s]) {
            if (at < CUTS) w->cut[at] = w->cut[at - 1];
            at--;
        }
        if (at < CUTS) w->cut[at] = (s + 1) % n;
    }
    return found;
}

static void colour_direction(net_t *net, sweep_t *w, int d)
{
    int32_t many = cuts(net, w, d), best = w->cut[0];
    int64_t least = sweep(net, w, d, best, 1); /* in earnest: the first cut is often enough */
    if (least == 0) return;
    net_clear_direction(net, d);
    for (int32_t k = 1; k < many && least > 0; k++) {
        int64_t left_out = sweep(net, w, d, w->cut[k], 0);
        if (left_out < least) {
            least = left_out;
            best = w->cut[k];
        }
    }
    sweep(net, w, d, best, 1);
}

int net_colour(net_t *net)
{
    size_t n = (size_t)net->n, rows = (size_t)net->rows, words = (size_t)net->words;
    int32_t *memory = malloc(sizeof(int32_t) * (2 * rows + 3 * n + 1 + CUTS + 64 * words));
    uint64_t *idle = malloc(sizeof(uint64_t) * words);
    if (!memory || !idle) {
        free(memory);
        free(idle);
        return SIPRING_EMEMORY;
    }
    sweep_t w = {.want = memory, .first_meeting = memory + 2 * rows, .idle = idle};
    w.released = w.first_meeting + n + 1;
    w.load = w.released + n;
    w.cut = w.load + n;
    w.next = w.cut + CUTS;
    int32_t *want[DIRECTIONS] = {memory, memory + rows};
    for (int d = 0; d < DIRECTIONS; d++)
        for (int32_t k = 0; k < net->rows; k++) want[d][k] = net->row[k].count[d];
    net_clear(net);
    for (int d = 0; d < DIRECTIONS; d++) {
        w.want = want[d];
        if (net->ring->wavelengths[d] > 0) colour_direction(net, &w, d);
    }
    free(memory);
    free(idle);
    return SIPRING_OK;
}

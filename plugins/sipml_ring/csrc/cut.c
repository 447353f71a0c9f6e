/* What cannot fit on a ring, however it is distributed: found without trying.
 *
 * Cut the ring behind node j and before node i. What the nodes i .. j send to the others leaves clockwise over the one
 * cut or counter-clockwise over the other; both together carry no more than their wavelengths, less what pairs with one
 * direction need there. */
#include <stdlib.h>

#include "net.h"

/* Largest ring that is cut at all pairs of segments: beyond, that takes longer than to try. */
enum { MOST_NODES = 128 };

/* Adds what pairs with one direction need on each segment; 0 if that is too much already. */
static int fixed_loads(const net_t *net, const int32_t *need, int d, int32_t *load)
{
    int32_t n = net->n, running = 0;
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        int32_t end = r->start[d] + r->hops[d];
        if (need[k] == 0 || r->hops[d] == 0 || r->hops[!d] > 0) continue;
        load[r->start[d]] += need[k];
        load[end <= n ? end : end - n] -= need[k];
        if (end > n) running += need[k];
    }
    for (int32_t s = 0; s < n; s++) {
        load[s] = running += load[s];
        if (running > net->ring->wavelengths[d]) return 0;
    }
    return 1;
}

/* sent[j][h]: what pairs with a choice need from node j to the next h nodes clockwise; received[j][h]: from the h nodes
 * before it. */
static void reaching(const net_t *net, const int32_t *need, int32_t *sent, int32_t *received)
{
    size_t n = (size_t)net->n;
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        if (need[k] == 0 || r->hops[CW] == 0 || r->hops[CCW] == 0) continue;
        sent[(size_t)r->src * n + (size_t)r->hops[CW]] += need[k];
        received[(size_t)r->dst * n + (size_t)r->hops[CW]] += need[k];
    }
    for (size_t j = 0; j < n; j++)
        for (size_t h = 1; h < n; h++) {
            sent[j * n + h] += sent[j * n + h - 1];
            received[j * n + h] += received[j * n + h - 1];
        }
}

static int cuts_hold(const net_t *net, const int32_t *sent, const int32_t *received, int32_t *const fixed[DIRECTIONS])
{
    int32_t n = net->n, both = net->ring->wavelengths[CW] + net->ring->wavelengths[CCW];
    for (int32_t i = 0; i < n; i++) {
        int32_t leaves = 0, left = both - fixed[CCW][i == 0 ? n - 1 : i - 1];
        for (int32_t m = 0; m < n - 1; m++) { /* node j = i + m joins: it sends outside, and is sent to inside */
            int32_t j = i + m < n ? i + m : i + m - n;
            leaves += sent[j * n + n - 1 - m] - received[j * n + m];
            if (leaves > left - fixed[CW][j]) return 0;
        }
    }
    return 1;
}

/* Every circuit of h segments clockwise takes h of one direction's or n - h of the other's. With prices of n - p and p
 * for a segment, no choice is cheaper than the lesser; all of them cost at most what all segments do. */
static int prices_hold(const net_t *net, const int32_t *need, int64_t *units)
{
    int32_t n = net->n;
    const int32_t *w = net->ring->wavelengths;
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        if (r->hops[CW] > 0 && r->hops[CCW] > 0) units[r->hops[CW]] += need[k];
    }
    for (int64_t p = 1; p < n; p++) {
        int64_t cost = 0;
        for (int64_t h = 1; h < n; h++) cost += units[h] * ((n - p) * h < p * (n - h) ? (n - p) * h : p * (n - h));
        if (cost > n * ((n - p) * w[CW] + p * w[CCW])) return 0;
    }
    return 1;
}

int net_may_fit(const net_t *net, const int32_t *need)
{
    size_t n = (size_t)net->n, cells = net->flexible > 0 ? n * n : 0;
    int fits = 1;
    if (net->n > MOST_NODES) return 1;
    int32_t *memory = calloc(2 * (n + 1) + 2 * cells, sizeof(int32_t));
    if (!memory) return 1;
    int32_t *fixed[DIRECTIONS] = {memory, memory + n + 1}, *sent = memory + 2 * (n + 1);
    for (int d = 0; d < DIRECTIONS && fits; d++) fits = fixed_loads(net, need, d, fixed[d]);
    if (fits && cells > 0) {
        reaching(net, need, sent, sent + cells);
        fits = cuts_hold(net, sent, sent + cells, fixed);
        if (fits) {
            int64_t units[MOST_NODES] = {0};
            fits = prices_hold(net, need, units);
        }
    }
    free(memory);
    return fits;
}

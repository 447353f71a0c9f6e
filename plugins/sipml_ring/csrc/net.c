#include "net.h"

#include <stdlib.h>
#include <string.h>

static int ring_ok(const sipring_ring *g)
{
    int folded = g->period > 0 && g->period < g->gpus;
    if (g->period < 0 || g->period > g->gpus) return 0;
    if (folded && (g->gpus % g->period || g->period < g->reach_hops || (g->gpus - 1) / 2 < g->reach_hops)) return 0;
    return g->gpus >= 1 && g->reach_hops >= 1 && g->wavelengths[CW] >= 0 && g->wavelengths[CCW] >= 0 &&
           (g->wavelengths[CW] > 0 || g->wavelengths[CCW] > 0) && g->wavelengths[CW] <= SIPRING_MAX_WAVELENGTHS &&
           g->wavelengths[CCW] <= SIPRING_MAX_WAVELENGTHS;
}

static int pairs_ok(int32_t n, int32_t period, int64_t pairs, const int32_t *src, const int32_t *dst, int64_t *bad)
{
    int64_t last = -1;
    for (int64_t p = 0; p < pairs; p++) {
        int64_t key = (int64_t)src[p] * n + dst[p];
        *bad = p;
        if (src[p] < 0 || src[p] >= period || dst[p] < 0 || dst[p] >= n || src[p] == dst[p] || key <= last) return 0;
        last = key;
    }
    return 1;
}

/* Sets the geometry of a pair; 0 if neither direction reaches. */
static int row_init(row_t *r, const sipring_ring *g, int32_t period, int32_t src, int32_t dst)
{
    int32_t cw = hops_to(g->gpus, src, dst), ccw = g->gpus - cw;
    memset(r, 0, sizeof *r);
    r->src = src;
    r->dst = dst;
    r->asked = -1;
    r->start[CW] = src;
    r->start[CCW] = dst % period;
    r->hops[CW] = cw <= g->reach_hops && g->wavelengths[CW] > 0 ? cw : 0;
    r->hops[CCW] = ccw <= g->reach_hops && g->wavelengths[CCW] > 0 ? ccw : 0;
    r->first = (uint8_t)(r->hops[CW] == 0 || (r->hops[CCW] > 0 && ccw < cw));
    return r->hops[CW] > 0 || r->hops[CCW] > 0;
}

/* Union of demanded pairs and pairs of the previous plan, in order; where[q]: row of previous pair q. */
static int merge(net_t *net, const sipring_demand *demand, const sipring_circuits *previous, int32_t *where,
                 int64_t *bad)
{
    const sipring_ring *g = net->ring;
    int64_t p = 0, q = 0, many = previous ? previous->pairs : 0, n = g->gpus;
    while (p < demand->pairs || q < many) {
        int64_t kp = p < demand->pairs ? (int64_t)demand->src[p] * n + demand->dst[p] : INT64_MAX;
        int64_t kq = q < many ? (int64_t)previous->src[q] * n + previous->dst[q] : INT64_MAX;
        row_t *r = &net->row[net->rows];
        int32_t src = kp <= kq ? demand->src[p] : previous->src[q], dst = kp <= kq ? demand->dst[p] : previous->dst[q];
        if (!row_init(r, g, net->n, src, dst)) {
            *bad = kp <= kq ? p : q;
            return kp <= kq ? SIPRING_EREACH : SIPRING_ECIRCUITS;
        }
        if (kp <= kq) {
            *bad = p;
            if (!(demand->demand[p] >= SIPRING_LEAST_DEMAND) || demand->demand[p] - demand->demand[p] != 0) return SIPRING_EPAIRS;
            r->demand = demand->demand[p];
            r->waited = demand->waited ? demand->waited[p] : 0;
            if (r->waited < 0) return SIPRING_EPAIRS;
            net->flexible += r->hops[CW] > 0 && r->hops[CCW] > 0;
            r->served = 1;
            r->asked = (int32_t)p++;
        }
        if (kq <= kp) where[q++] = net->rows;
        net->rows++;
    }
    return SIPRING_OK;
}

static int remember(net_t *net, const sipring_circuits *previous, const int32_t *where, int64_t *bad)
{
    for (int64_t k = 0; k < previous->circuits; k++) {
        int d = previous->direction[k];
        int32_t c = previous->index[k];
        *bad = k;
        if (previous->pair[k] < 0 || previous->pair[k] >= previous->pairs || d < CW || d > CCW || c < 0) return SIPRING_ECIRCUITS;
        if (c >= net->ring->wavelengths[d] || net->row[where[previous->pair[k]]].hops[d] == 0)
            return SIPRING_ECIRCUITS;
        mask_of(net, net->before, where[previous->pair[k]], d)[c >> 6] |= UINT64_C(1) << (c & 63);
    }
    return SIPRING_OK;
}

/* Rows that may use direction d, by start and falling length: two counting sorts. */
static int sort_rows(net_t *net, int d)
{
    int32_t n = net->n, *by_length = malloc(sizeof(int32_t) * (size_t)(net->rows + 1));
    int32_t *count = calloc((size_t)n + 2, sizeof(int32_t)), used = 0;
    if (!by_length || !count) {
        free(by_length);
        free(count);
        return SIPRING_EMEMORY;
    }
    for (int32_t r = 0; r < net->rows; r++) count[n - net->row[r].hops[d] + 1]++;
    for (int32_t k = 0; k <= n; k++) count[k + 1] += count[k];
    used = count[n]; /* hops 0 come last and are left out */
    for (int32_t r = 0; r < net->rows; r++) by_length[count[n - net->row[r].hops[d]]++] = r;
    memset(net->from[d], 0, sizeof(int32_t) * ((size_t)n + 1));
    for (int32_t k = 0; k < used; k++) net->from[d][net->row[by_length[k]].start[d] + 1]++;
    for (int32_t s = 0; s < n; s++) net->from[d][s + 1] += net->from[d][s];
    memcpy(count, net->from[d], sizeof(int32_t) * (size_t)n);
    for (int32_t k = 0; k < used; k++) net->by_start[d][count[net->row[by_length[k]].start[d]]++] = by_length[k];
    free(by_length);
    free(count);
    return SIPRING_OK;
}

/* So many owners in each direction, at most, are written down as circuits come; on larger rings whoever asks looks. */
enum { MOST_OWNERS = 1 << 13 };

/* The next `count` elements of `size` bytes in a block of memory, from a multiple of 8 on. With `block` NULL only *used is
 * raised: by how much memory there must be. */
static void *part(char *block, size_t *used, size_t count, size_t size)
{
    void *found = block ? block + *used : NULL;
    *used += (count * size + 7) / 8 * 8;
    return found;
}

/* Lays all arrays out in a block for at most `most` rows; returns its size. One block for all: large ones cost a page
 * fault for every 4 KiB each time they are had from the system anew, which one that is had again and again is not. */
static size_t lay_out(net_t *net, char *block, size_t most, int previous)
{
    size_t used = 0, n = (size_t)net->n, words = (size_t)net->words;
    net->memory = block;
    net->row = part(block, &used, most, sizeof(row_t));
    net->held = part(block, &used, most * DIRECTIONS * words, sizeof(uint64_t));
    net->before = previous ? part(block, &used, most * DIRECTIONS * words, sizeof(uint64_t)) : NULL;
    for (int d = 0; d < DIRECTIONS; d++) {
        net->free_mask[d] = part(block, &used, n * words, sizeof(uint64_t));
        net->room[d] = part(block, &used, n, sizeof(int32_t));
        net->owner[d] = NULL;
        if (64 * n * words <= MOST_OWNERS) net->owner[d] = part(block, &used, 64 * n * words, sizeof(int32_t));
        net->by_start[d] = part(block, &used, most, sizeof(int32_t));
        net->from[d] = part(block, &used, n + 1, sizeof(int32_t));
    }
    return used;
}

int net_build(net_t *net, const sipring_ring *ring, const sipring_demand *demand, const sipring_circuits *previous,
              int64_t *bad)
{
    int64_t most = demand->pairs + (previous ? previous->pairs : 0);
    int status = SIPRING_EMEMORY;
    int32_t widest = 0, period = ring->period > 0 ? ring->period : ring->gpus;
    memset(net, 0, sizeof *net);
    *bad = 0;
    if (!ring_ok(ring)) return SIPRING_ERING;
    if (most >= INT32_MAX || !pairs_ok(ring->gpus, period, demand->pairs, demand->src, demand->dst, bad)) return SIPRING_EPAIRS;
    if (previous && !pairs_ok(ring->gpus, period, previous->pairs, previous->src, previous->dst, bad)) return SIPRING_ECIRCUITS;
    for (int d = 0; d < DIRECTIONS; d++)
        if (ring->wavelengths[d] > widest) widest = ring->wavelengths[d];
    net->ring = ring;
    net->n = period;
    net->reach = ring->reach_hops < period ? ring->reach_hops : period;
    net->words = (widest + 63) / 64;
    net->continuous = ring->continuous;
    net->past = previous && previous->circuits > 0;
    size_t rows = (size_t)most + 1, size = lay_out(net, NULL, rows, previous != NULL);
    char *block = malloc(size);
    int32_t *where = malloc(sizeof(int32_t) * rows);
    lay_out(net, block, rows, previous != NULL);
    if (!block || !where) goto fail;
    if (previous) memset(net->before, 0, sizeof(uint64_t) * rows * DIRECTIONS * (size_t)net->words);
    status = merge(net, demand, previous, where, bad);
    if (status == SIPRING_OK && previous) status = remember(net, previous, where, bad);
    for (int d = 0; d < DIRECTIONS && status == SIPRING_OK; d++) status = sort_rows(net, d);
    net_clear(net);
fail:
    free(where);
    return status;
}

void net_free(net_t *net) { free(net->memory); }

/* Every wavelength of a direction is idle; what rows hold of it is left as it is. */
static void empty(net_t *net, int d)
{
    int32_t w = net->ring->wavelengths[d];
    memset(net->free_mask[d], 0, sizeof(uint64_t) * (size_t)net->n * (size_t)net->words);
    for (int32_t s = 0; s < net->n; s++) {
        net->room[d][s] = w;
        for (int32_t k = 0; k < w; k += 64)
            net->free_mask[d][(size_t)s * (size_t)net->words + (size_t)(k >> 6)] =
                w - k >= 64 ? UINT64_MAX : (UINT64_C(1) << (w - k)) - 1;
    }
}

void net_clear(net_t *net)
{
    memset(net->held, 0, sizeof(uint64_t) * (size_t)net->rows * DIRECTIONS * (size_t)net->words);
    for (int32_t r = 0; r < net->rows; r++) net->row[r].count[CW] = net->row[r].count[CCW] = 0;
    for (int d = 0; d < DIRECTIONS; d++) empty(net, d);
}

void net_clear_direction(net_t *net, int d)
{
    for (int32_t r = 0; r < net->rows; r++) {
        net->row[r].count[d] = 0;
        memset(mask_of(net, net->held, r, d), 0, sizeof(uint64_t) * (size_t)net->words);
    }
    empty(net, d);
}

int net_room(const net_t *net, int32_t row, int d)
{
    const row_t *r = &net->row[row];
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d]; k++) {
        if (net->room[d][s] <= 0) return 0;
        if (++s == net->n) s = 0;
    }
    return 1;
}

/* Bits idle on the whole arc; 0 if none. */
static int idle_bits(const net_t *net, const row_t *r, int d, uint64_t *bits)
{
    uint64_t any = 1;
    for (int32_t w = 0; w < net->words; w++) bits[w] = UINT64_MAX;
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d] && any; k++) {
        const uint64_t *f = net->free_mask[d] + (size_t)s * (size_t)net->words;
        any = 0;
        for (int32_t w = 0; w < net->words; w++) any |= bits[w] &= f[w];
        if (++s == net->n) s = 0;
    }
    return any != 0;
}

static int32_t lowest(const uint64_t *bits, int32_t words)
{
    for (int32_t w = 0; w < words; w++)
        if (bits[w]) return 64 * w + lowest_bit(bits[w]);
    return -1;
}

/* net_find on rings of one word of wavelengths, as small ones are, on which it is asked for again and again. */
static int32_t find_in_word(const net_t *net, int32_t row, int d, int32_t before, int32_t after)
{
    const row_t *r = &net->row[row];
    const uint64_t *f = net->free_mask[d];
    uint64_t bits = UINT64_MAX, best;
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d] && bits; k++) {
        bits &= f[s];
        if (++s == net->n) s = 0;
    }
    if (!bits) return -1;
    best = net->past ? bits & *mask_of(net, net->before, row, d) : 0;
    if (!best) best = bits & ~f[before] & ~f[after];
    if (!best) best = bits & ~(f[before] & f[after]);
    return lowest_bit(best ? best : bits);
}

/* Prefers an index of the pair's own past, then one that leaves no gap on either side, then on one side. */
int32_t net_find(const net_t *net, int32_t row, int d)
{
    const row_t *r = &net->row[row];
    int32_t words = net->words, after = r->start[d] + r->hops[d];
    int32_t ahead = r->start[d] == 0 ? net->n - 1 : r->start[d] - 1; /* the segment before the arc */
    after -= after >= net->n ? net->n : 0;
    if (words == 1) return find_in_word(net, row, d, ahead, after);
    uint64_t bits[SIPRING_MAX_WAVELENGTHS / 64], best[SIPRING_MAX_WAVELENGTHS / 64], any = 0;
    const uint64_t *past = net->past ? mask_of(net, net->before, row, d) : NULL;
    const uint64_t *left = net->free_mask[d] + (size_t)ahead * (size_t)words;
    const uint64_t *right = net->free_mask[d] + (size_t)after * (size_t)words;
    if (!idle_bits(net, r, d, bits)) return -1;
    for (int32_t w = 0; w < words && past; w++) any |= best[w] = bits[w] & past[w];
    if (!any)
        for (int32_t w = 0; w < words; w++) any |= best[w] = bits[w] & ~left[w] & ~right[w];
    if (!any)
        for (int32_t w = 0; w < words; w++) any |= best[w] = bits[w] & ~(left[w] & right[w]);
    return lowest(any ? best : bits, words);
}

int net_idle(const net_t *net, int32_t row, int d, int32_t index)
{
    const row_t *r = &net->row[row];
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d]; k++) {
        if (!(net->free_mask[d][(size_t)s * (size_t)net->words + (size_t)(index >> 6)] >> (index & 63) & 1)) return 0;
        if (++s == net->n) s = 0;
    }
    return 1;
}

static void flip(net_t *net, int32_t row, int d, int32_t index)
{
    const row_t *r = &net->row[row];
    uint64_t bit = UINT64_C(1) << (index & 63);
    mask_of(net, net->held, row, d)[index >> 6] ^= bit;
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d]; k++) {
        net->free_mask[d][(size_t)s * (size_t)net->words + (size_t)(index >> 6)] ^= bit;
        if (++s == net->n) s = 0;
    }
}

void net_take(net_t *net, int32_t row, int d, int32_t index)
{
    const row_t *r = &net->row[row];
    flip(net, row, d, index);
    for (int32_t k = 0, s = r->start[d]; net->owner[d] && k < r->hops[d]; k++) {
        net->owner[d][64 * s * net->words + index] = row;
        if (++s == net->n) s = 0;
    }
    net->row[row].count[d]++;
    if (net->rank.node) rank_note(&net->rank, row);
}

void net_drop(net_t *net, int32_t row, int d, int32_t index)
{
    flip(net, row, d, index);
    net->row[row].count[d]--;
    if (net->rank.node) rank_note(&net->rank, row);
}

void net_shift(net_t *net, int32_t row, int d, int32_t by)
{
    row_t *r = &net->row[row];
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d]; k++) {
        net->room[d][s] -= by;
        if (++s == net->n) s = 0;
    }
    r->count[d] += by;
    if (net->rank.node) rank_note(&net->rank, row);
}

int net_add(net_t *net, int32_t row, int d)
{
    if (net->row[row].hops[d] == 0) return 0;
    if (net->continuous) {
        int32_t index = net_find(net, row, d);
        if (index >= 0) net_take(net, row, d, index);
        return index >= 0;
    }
    if (!net_room(net, row, d)) return 0;
    net_shift(net, row, d, 1);
    return 1;
}

void net_occupy(net_t *net)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        int32_t n = net->n, *room = net->room[d], left = net->ring->wavelengths[d];
        memset(room, 0, sizeof(int32_t) * (size_t)n);
        for (int32_t k = 0; k < net->rows; k++) { /* room: by how much it changes from the segment before */
            const row_t *r = &net->row[k];
            int32_t end = r->start[d] + r->hops[d];
            if (r->count[d] == 0) continue;
            room[r->start[d]] -= r->count[d];
            if (end < n) room[end] += r->count[d];
            else if (end > n) room[end - n] += r->count[d];
            if (end > n) left -= r->count[d]; /* it covers segment 0 as well */
        }
        for (int32_t s = 0; s < n; s++) room[s] = left += room[s];
    }
}

double net_minimum(const net_t *net)
{
    double least = -1;
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        if (!r->served || (least >= 0 && surely_above(total(r), r->demand, least))) continue;
        if (least < 0 || ratio(r) < least) least = ratio(r);
    }
    return least < 0 ? 0 : least;
}

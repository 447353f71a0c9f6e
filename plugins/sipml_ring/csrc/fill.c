/* Adding circuits one at a time: who is served at all, raising the minimum, and filling what is idle. */
#include <math.h>
#include <stdlib.h>

#include "net.h"

static int add_any(net_t *net, int32_t row)
{
    int first = net->row[row].first;
    return net_add(net, row, first) || net_add(net, row, !first);
}

/* A row that holds `index` on segment s. */
static int32_t holder(const net_t *net, int d, int32_t s, int32_t index)
{
    int32_t reach = net->ring->reach_hops < net->n ? net->ring->reach_hops : net->n - 1;
    for (int32_t back = 0; back < reach; back++) {
        int32_t u = s - back < 0 ? s - back + net->n : s - back;
        for (int32_t k = net->from[d][u]; k < net->from[d][u + 1]; k++) {
            int32_t row = net->by_start[d][k];
            if (net->row[row].hops[d] <= back) break;
            if (mask_of(net, net->held, row, d)[index >> 6] >> (index & 63) & 1) return row;
        }
    }
    return -1;
}

typedef struct {
    int32_t row, index, to; /* to: new index, or -1 if given up */
    int d;                  /* new direction */
} move_t;

/* Makes `index` idle on the arc of (row, d): each circuit in the way moves to another index or direction, or is given
 * up where its pair stays at or above `floor`. Undone, and 0, if one can do neither. */
static int clear_way(net_t *net, int32_t row, int d, int32_t index, double floor, move_t *moves)
{
    const row_t *r = &net->row[row];
    int32_t made = 0;
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d]; k++, s = s + 1 == net->n ? 0 : s + 1) {
        if (net->free_mask[d][(size_t)s * (size_t)net->words + (size_t)(index >> 6)] >> (index & 63) & 1) continue;
        int32_t other = holder(net, d, s, index);
        move_t m = {.row = other, .index = index, .to = -1, .d = d};
        if (other < 0 || other == row) goto undo;
        if ((m.to = net_find(net, other, d)) < 0 && net->row[other].hops[!d] > 0) {
            m.d = !d;
            m.to = net_find(net, other, !d);
        }
        if (m.to < 0 && (total(&net->row[other]) - 1) / net->row[other].demand < floor) goto undo;
        net_drop(net, other, d, index);
        if (m.to >= 0) net_take(net, other, m.d, m.to);
        moves[made++] = m;
    }
    return 1;
undo:
    while (made-- > 0) {
        if (moves[made].to >= 0) net_drop(net, moves[made].row, moves[made].d, moves[made].to);
        net_take(net, moves[made].row, d, moves[made].index);
    }
    return 0;
}

/* A unit that gives way on segment s: to its other direction if there is room, or given up (to = -1). Furthest first. */
static int find_mover(const net_t *net, int32_t row, int d, int32_t s, double floor, move_t *move)
{
    int32_t reach = net->ring->reach_hops < net->n ? net->ring->reach_hops : net->n - 1, best_left = 0;
    for (int32_t back = 0; back < reach; back++) {
        int32_t u = s - back < 0 ? s - back + net->n : s - back;
        for (int32_t k = net->from[d][u]; k < net->from[d][u + 1]; k++) {
            int32_t other = net->by_start[d][k], left = net->row[other].hops[d] - back;
            const row_t *r = &net->row[other];
            if (left <= best_left) break;
            if (other == row || r->count[d] == 0) continue;
            int turns = r->hops[!d] > 0 && net_room(net, other, !d);
            if (!turns && (total(r) - 1) / r->demand < floor) continue;
            *move = (move_t){.row = other, .to = turns ? 0 : -1, .d = !d};
            best_left = left;
            break;
        }
    }
    return best_left > 0;
}

/* clear_way without indices. */
static int clear_room(net_t *net, int32_t row, int d, double floor, move_t *moves)
{
    const row_t *r = &net->row[row];
    int32_t made = 0;
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d]; k++, s = s + 1 == net->n ? 0 : s + 1) {
        move_t m;
        if (net->room[d][s] > 0) continue;
        if (!find_mover(net, row, d, s, floor, &m)) goto undo;
        net_shift(net, m.row, d, -1);
        if (m.to >= 0) net_shift(net, m.row, !d, 1);
        moves[made++] = m;
    }
    return 1;
undo:
    while (made-- > 0) {
        if (moves[made].to >= 0) net_shift(net, moves[made].row, !d, -1);
        net_shift(net, moves[made].row, d, 1);
    }
    return 0;
}

static int make_way(net_t *net, int32_t row, int d, double floor, move_t *moves)
{
    if (net->row[row].hops[d] == 0) return 0;
    if (!net->continuous) {
        if (!clear_room(net, row, d, floor, moves)) return 0;
        net_shift(net, row, d, 1);
        return 1;
    }
    for (int32_t index = 0; index < net->ring->wavelengths[d]; index++)
        if (clear_way(net, row, d, index, floor, moves)) {
            net_take(net, row, d, index);
            return 1;
        }
    return 0;
}

int net_lift(net_t *net, int32_t row, double floor)
{
    int first = net->row[row].first, done;
    if (add_any(net, row)) return 1;
    move_t *moves = malloc(sizeof *moves * (size_t)net->n);
    done = moves && (make_way(net, row, first, floor, moves) || make_way(net, row, !first, floor, moves));
    free(moves);
    return done;
}

/* Longest waiting first, then fewest segments, then largest demand, then (src, dst). */
static int by_claim(const void *left, const void *right)
{
    const row_t *a = *(const row_t *const *)left, *b = *(const row_t *const *)right;
    if (a->waited != b->waited) return a->waited > b->waited ? -1 : 1;
    if (a->hops[a->first] != b->hops[b->first]) return a->hops[a->first] < b->hops[b->first] ? -1 : 1;
    if (a->demand != b->demand) return a->demand > b->demand ? -1 : 1;
    return a < b ? -1 : 1;
}

int net_admit(net_t *net)
{
    const row_t **order = malloc(sizeof *order * (size_t)(net->rows + 1));
    int32_t many = 0, tries = 256; /* at making way, which takes time */
    if (!order) return SIPRING_EMEMORY;
    net_clear(net);
    for (int32_t k = 0; k < net->rows; k++)
        if (net->row[k].demand > 0) order[many++] = &net->row[k];
    qsort(order, (size_t)many, sizeof *order, by_claim);
    for (int32_t k = 0; k < many; k++) {
        int32_t row = (int32_t)(order[k] - net->row);
        net->row[row].served = (uint8_t)(add_any(net, row) || (tries-- > 0 && net_lift(net, row, INFINITY)));
    }
    free(order);
    return SIPRING_OK;
}

void net_climb(net_t *net, double ceiling)
{
    int64_t steps = 200 + 4000000 / (net->rows + 1);
    while (steps-- > 0) {
        int32_t worst = -1;
        for (int32_t k = 0; k < net->rows; k++)
            if (net->row[k].served && (worst < 0 || ratio(&net->row[k]) < ratio(&net->row[worst]))) worst = k;
        if (worst < 0) return;
        double low = ratio(&net->row[worst]);
        if (low >= ceiling * (1 - 1e-9) || !net_lift(net, worst, low * (1 + 1e-9))) return;
    }
}

typedef struct {
    double key;
    int32_t row;
} entry_t;

static int before(entry_t a, entry_t b) { return a.key < b.key || (a.key == b.key && a.row < b.row); }

static void sift(entry_t *heap, int32_t many, int32_t at)
{
    entry_t moving = heap[at];
    for (int32_t child; (child = 2 * at + 1) < many; at = child) {
        if (child + 1 < many && before(heap[child + 1], heap[child])) child++;
        if (!before(heap[child], moving)) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

/* Lowest ratio first, of those without circuits the longest waiting; a pair that finds nothing leaves. Once in the shorter direction only, then in either. */
static void fill_pass(net_t *net, entry_t *heap, int either)
{
    int32_t many = 0;
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        if (r->demand > 0 && (!either || (r->hops[CW] > 0 && r->hops[CCW] > 0)))
            heap[many++] = (entry_t){total(r) > 0 ? ratio(r) : -(double)r->waited, k};
    }
    for (int32_t k = many / 2 - 1; k >= 0; k--) sift(heap, many, k);
    while (many > 0) {
        int32_t row = heap[0].row;
        if (either ? add_any(net, row) : net_add(net, row, net->row[row].first)) heap[0].key = ratio(&net->row[row]);
        else heap[0] = heap[--many];
        if (many > 0) sift(heap, many, 0);
    }
}

int net_fill(net_t *net)
{
    entry_t *heap = malloc(sizeof *heap * (size_t)(net->rows + 1));
    if (!heap) return SIPRING_EMEMORY;
    fill_pass(net, heap, 0);
    if (net->flexible > 0) fill_pass(net, heap, 1);
    free(heap);
    return SIPRING_OK;
}

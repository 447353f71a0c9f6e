/* Adding circuits one at a time: who is served at all, raising the minimum, and filling what is idle. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

/* Plans waited beyond this count alike; below the bits of any float from 1 on. */
enum { LONGEST_WAIT = 1000000 };

static int add_any(net_t *net, int32_t row)
{
    int first = net->row[row].first;
    return net_add(net, row, first) || net_add(net, row, !first);
}

/* The row that holds `index` on segment s, where it is not idle. */
static int32_t holder(const net_t *net, int d, int32_t s, int32_t index)
{
    if (net->owner[d]) return net->owner[d][64 * s * net->words + index];
    for (int32_t back = 0; back < net->reach; back++) {
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

/* Circuits moved without indices, to be undone. */
typedef struct {
    int32_t *row, *by; /* [most] */
    int8_t *d;
    int32_t made, most;
} journal_t;

static int shift(net_t *net, journal_t *j, int32_t row, int d, int32_t by)
{
    if (j->made == j->most) return 0;
    net_shift(net, row, d, by);
    j->row[j->made] = row;
    j->by[j->made] = by;
    j->d[j->made++] = (int8_t)d;
    return 1;
}

static void undo_to(net_t *net, journal_t *j, int32_t mark)
{
    while (j->made > mark) {
        j->made--;
        net_shift(net, j->row[j->made], j->d[j->made], -j->by[j->made]);
    }
}

static int clear_room(net_t *net, int32_t row, int d, double floor, journal_t *j, int depth);

/* One circuit of `other` leaves direction d: for the other direction, or given up if its pair stays at or above
 * `floor`. With depth, others make way for it there. */
static int turn(net_t *net, int32_t other, int d, double floor, journal_t *j, int depth)
{
    const row_t *r = &net->row[other];
    int32_t mark = j->made;
    if (r->hops[!d] > 0 && (net_room(net, other, !d) || depth > 0)) {
        if (shift(net, j, other, d, -1) && clear_room(net, other, !d, floor, j, depth - 1) &&
            shift(net, j, other, !d, 1))
            return 1;
        undo_to(net, j, mark);
    }
    return (total(r) - 1) / r->demand >= floor && shift(net, j, other, d, -1);
}

/* Somebody gives way to `row` on segment s; those that reach furthest are asked first. */
static int free_segment(net_t *net, int32_t row, int d, int32_t s, double floor, journal_t *j, int depth)
{
    int32_t mark = j->made;
    for (int32_t left = net->reach; left > 0; left--)
        for (int32_t back = 0; back + left <= net->reach; back++) {
            int32_t u = s - back < 0 ? s - back + net->n : s - back;
            for (int32_t k = net->from[d][u]; k < net->from[d][u + 1]; k++) {
                int32_t other = net->by_start[d][k];
                if (net->row[other].hops[d] != back + left) continue;
                if (other == row || net->row[other].count[d] == 0) continue;
                if (!turn(net, other, d, floor, j, depth)) continue;
                if (net->room[d][s] > 0) return 1;
                undo_to(net, j, mark);
            }
        }
    return 0;
}

/* Room for one more circuit of (row, d); undone, and 0, if somebody will not give way. */
static int clear_room(net_t *net, int32_t row, int d, double floor, journal_t *j, int depth)
{
    const row_t *r = &net->row[row];
    int32_t mark = j->made;
    for (int32_t k = 0, s = r->start[d]; k < r->hops[d]; k++, s = s + 1 == net->n ? 0 : s + 1)
        if (net->room[d][s] <= 0 && (depth < 0 || !free_segment(net, row, d, s, floor, j, depth))) {
            undo_to(net, j, mark);
            return 0;
        }
    if (net_room(net, row, d)) return 1;
    undo_to(net, j, mark);
    return 0;
}

/* One more circuit for (row, d), others turning or giving up; chains of up to three. */
static int make_room(net_t *net, int32_t row, int d, double floor)
{
    journal_t j = {.made = 0, .most = 4 * net->n + 16};
    int done = 0;
    if (net->row[row].hops[d] == 0) return 0;
    j.row = malloc((2 * sizeof(int32_t) + 1) * (size_t)j.most);
    if (!j.row) return 0;
    j.by = j.row + j.most;
    j.d = (int8_t *)(j.by + j.most);
    for (int depth = 0; depth <= (net->flexible > 0 ? 1 : 0) && !done; depth++)
        done = clear_room(net, row, d, floor, &j, depth);
    if (done) net_shift(net, row, d, 1);
    free(j.row);
    return done;
}

static int make_way(net_t *net, int32_t row, int d, double floor)
{
    move_t *moves;
    int done = 0;
    if (net->row[row].hops[d] == 0) return 0;
    moves = malloc(sizeof *moves * (size_t)net->n);
    for (int32_t index = 0; moves && index < net->ring->wavelengths[d] && !done; index++)
        if (clear_way(net, row, d, index, floor, moves)) {
            net_take(net, row, d, index);
            done = 1;
        }
    free(moves);
    return done;
}

int net_lift(net_t *net, int32_t row, double floor)
{
    int first = net->row[row].first;
    int (*way)(net_t *, int32_t, int, double) = net->continuous ? make_way : make_room;
    return add_any(net, row) || way(net, row, first, floor) || way(net, row, !first, floor);
}

/* A row that asks: what comes first of it in the order below, its demand, and its number. */
typedef struct {
    uint64_t rank; /* longest waiting first, then fewest segments */
    double demand;
    int32_t row;
} claim_t;

/* Longest waiting first, then fewest segments, then largest demand, then (src, dst). */
static int by_claim(const void *left, const void *right)
{
    const claim_t *a = left, *b = right;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->demand != b->demand) return a->demand > b->demand ? -1 : 1;
    return a->row < b->row ? -1 : 1;
}

int net_admit(net_t *net)
{
    claim_t *order = malloc(sizeof *order * (size_t)(net->rows + 1));
    int32_t many = 0, tries = 64; /* at making way, which takes time */
    if (!order) return SIPRING_EMEMORY;
    net_clear(net);
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        uint64_t rank = (uint64_t)(INT32_MAX - r->waited) << 32 | (uint32_t)r->hops[r->first];
        if (r->demand > 0) order[many++] = (claim_t){.rank = rank, .demand = r->demand, .row = k};
    }
    qsort(order, (size_t)many, sizeof *order, by_claim);
    for (int32_t k = 0; k < many; k++) {
        int32_t row = order[k].row;
        net->row[row].served = (uint8_t)(add_any(net, row) || (tries-- > 0 && net_lift(net, row, INFINITY)));
    }
    free(order);
    return SIPRING_OK;
}

/* The served row with the lowest ratio, the first of equals; -1: none is served. */
static int32_t lowest_row(const net_t *net)
{
    int32_t lowest = -1;
    double least = INFINITY;
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        if (!r->served || surely_above(total(r), r->demand, least)) continue;
        if (lowest >= 0 && ratio(r) >= least) continue;
        lowest = k;
        least = ratio(r);
    }
    return lowest;
}

/* States come again where the lowest row has no circuit: another gives its last one for it, and takes it back. */
typedef struct {
    uint64_t *held; /* [rows][2][words] circuits before step `at`; NULL: not kept yet */
    int64_t at;
    int32_t worst; /* the row that was lifted then */
    int found;
} loop_t;

enum { FIRST_KEPT = 16 };

/* Before a step: if its circuits are those before an earlier one, the steps between repeat until the last. Returns after
 * how many steps in all the circuits are those that they would be after `steps`; -1: out of memory. Brent's algorithm. */
static int64_t steps_of_loop(const net_t *net, loop_t *loop, int32_t worst, int64_t step, int64_t steps)
{
    size_t size = sizeof(uint64_t) * (size_t)net->rows * DIRECTIONS * (size_t)net->words;
    if (loop->found || step < FIRST_KEPT) return steps;
    if (loop->held && worst == loop->worst && memcmp(loop->held, net->held, size) == 0) {
        loop->found = 1;
        return step + (steps - step) % (step - loop->at);
    }
    if (loop->held && step < 2 * loop->at) return steps;
    if (!loop->held && !(loop->held = malloc(size))) return -1;
    memcpy(loop->held, net->held, size);
    loop->at = step;
    loop->worst = worst;
    return steps;
}

int net_climb(net_t *net, double ceiling)
{
    int64_t steps = 200 + 4000000 / (net->rows + 1);
    int status = SIPRING_OK;
    loop_t loop = {.held = NULL};
    for (int64_t step = 0; step < steps; step++) {
        int32_t worst = net->rank.node ? rank_lowest(&net->rank) : lowest_row(net);
        double low = worst < 0 ? ceiling : ratio(&net->row[worst]);
        if (low == 0 && net->continuous) {
            if ((steps = steps_of_loop(net, &loop, worst, step, steps)) < 0) status = SIPRING_EMEMORY;
            if (step >= steps) break;
        }
        if (low >= ceiling * (1 - 1e-9) || !net_lift(net, worst, low * (1 + 1e-9))) break;
        /* Kept in order from the first that was lifted on: often there is none. */
        if (!net->rank.node && rank_open(&net->rank, net->row, net->rows)) {
            status = SIPRING_EMEMORY;
            break;
        }
    }
    rank_close(&net->rank);
    free(loop.held);
    return status;
}

/* Ratio in the upper half, row in the lower: one comparison, ties by row. Positive floats sort like their bits;
 * ratios are relative to the largest demand, so that they are at least 1. */
typedef uint64_t entry_t;

static entry_t entry_of(const row_t *r, int32_t row, double largest)
{
    float key = (float)(ratio(r) * largest);
    uint32_t bits;
    memcpy(&bits, &key, sizeof bits);
    if (total(r) == 0) bits = (uint32_t)(LONGEST_WAIT - (r->waited < LONGEST_WAIT ? r->waited : LONGEST_WAIT));
    return (entry_t)bits << 32 | (uint32_t)row;
}

static void sift(entry_t *heap, int32_t many, int32_t at)
{
    entry_t moving = heap[at];
    for (int32_t child; (child = 2 * at + 1) < many; at = child) {
        child += child + 1 < many && heap[child + 1] < heap[child];
        if (heap[child] >= moving) break;
        heap[at] = heap[child];
    }
    heap[at] = moving;
}

static void push(entry_t *heap, int32_t many, entry_t entry)
{
    int32_t at = many;
    for (; at > 0 && heap[(at - 1) / 2] > entry; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = entry;
}

/* Sorts entries whose rows ascend, byte by byte of their upper half; `other` holds as many. Returns where they are. */
static entry_t *sorted(entry_t *entries, entry_t *other, int32_t many)
{
    for (int shift = 32; shift < 64 && many > 0; shift += 8) {
        int32_t start[257] = {0};
        for (int32_t k = 0; k < many; k++) start[(entries[k] >> shift & 255) + 1]++;
        if (start[(entries[0] >> shift & 255) + 1] == many) continue; /* the byte is the same in all */
        for (int b = 0; b < 256; b++) start[b + 1] += start[b];
        for (int32_t k = 0; k < many; k++) other[start[entries[k] >> shift & 255]++] = entries[k];
        entry_t *held = entries;
        entries = other;
        other = held;
    }
    return entries;
}

/* Lowest ratio first, of those without circuits the longest waiting; a pair that finds nothing leaves. Once in the
 * shorter direction only, then in either. `memory` holds three entries for each row. */
static void fill_pass(net_t *net, entry_t *memory, double largest, int either)
{
    entry_t *heap = memory + 2 * (size_t)net->rows; /* rows that found something, and come again */
    int32_t many = 0, next = 0, again = 0;
    for (int32_t k = 0; k < net->rows; k++)
        if (net->row[k].demand > 0) memory[many++] = entry_of(&net->row[k], k, largest);
    const entry_t *first = sorted(memory, memory + net->rows, many); /* rows that have not been asked yet */
    while (next < many || again > 0) {
        int asked = again > 0 && (next == many || heap[0] < first[next]);
        int32_t row = (int32_t)(uint32_t)(asked ? heap[0] : first[next++]);
        int found = either ? add_any(net, row) : net_add(net, row, net->row[row].first);
        if (asked) {
            heap[0] = found ? entry_of(&net->row[row], row, largest) : heap[--again];
            if (again > 0) sift(heap, again, 0);
        } else if (found) {
            push(heap, again++, entry_of(&net->row[row], row, largest));
        }
    }
}

int net_fill(net_t *net)
{
    entry_t *memory = malloc(sizeof *memory * 3 * ((size_t)net->rows + 1));
    double largest = 0;
    if (!memory) return SIPRING_EMEMORY;
    for (int32_t k = 0; k < net->rows; k++)
        if (net->row[k].demand > largest) largest = net->row[k].demand;
    fill_pass(net, memory, largest, 0);
    if (net->flexible > 0) fill_pass(net, memory, largest, 1);
    free(memory);
    return SIPRING_OK;
}

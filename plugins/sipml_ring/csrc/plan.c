/* The planner: what the pieces do in which order. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

#define NEARLY (1 - 1e-9)

/* Pairs, all images counted, times wavelengths times rounds that small rings are retried for. */
enum { SMALL = 100000 };

/* Counts of every row in both directions, and the indices they hold, to come back to. */
typedef struct {
    double minimum; /* below 0: empty */
    int32_t *count; /* [rows][2] */
    uint64_t *held; /* continuous only */
} snapshot_t;

static size_t mask_words(const net_t *net) { return (size_t)net->rows * DIRECTIONS * (size_t)net->words; }

static int snapshot_alloc(const net_t *net, snapshot_t *s)
{
    s->minimum = -1;
    s->count = malloc(sizeof(int32_t) * DIRECTIONS * ((size_t)net->rows + 1));
    s->held = net->continuous ? malloc(sizeof(uint64_t) * (mask_words(net) + 1)) : NULL;
    return s->count && (s->held || !net->continuous) ? SIPRING_OK : SIPRING_EMEMORY;
}

static void snapshot_free(snapshot_t *s)
{
    free(s->count);
    free(s->held);
}

static void get_counts(const net_t *net, int32_t *count)
{
    for (int32_t k = 0; k < net->rows; k++)
        for (int d = 0; d < DIRECTIONS; d++) count[DIRECTIONS * k + d] = net->row[k].count[d];
}

static void set_counts(net_t *net, const int32_t *count)
{
    for (int32_t k = 0; k < net->rows; k++)
        for (int d = 0; d < DIRECTIONS; d++) net->row[k].count[d] = count[DIRECTIONS * k + d];
}

static void save(const net_t *net, snapshot_t *s)
{
    s->minimum = net_minimum(net);
    get_counts(net, s->count);
    if (net->continuous) memcpy(s->held, net->held, sizeof(uint64_t) * mask_words(net));
}

static void load(net_t *net, const snapshot_t *s)
{
    net_clear(net);
    if (!net->continuous) {
        set_counts(net, s->count);
        net_occupy(net);
        return;
    }
    for (int32_t row = 0; row < net->rows; row++)
        for (int d = 0; d < DIRECTIONS; d++) {
            const uint64_t *held = s->held + ((size_t)row * DIRECTIONS + (size_t)d) * (size_t)net->words;
            for (int32_t w = 0; w < net->words; w++)
                for (uint64_t bits = held[w]; bits; bits &= bits - 1) net_take(net, row, d, 64 * w + lowest_bit(bits));
        }
}

static void lift_to_need(net_t *net, double floor)
{
    for (int32_t k = 0; k < net->rows; k++)
        while (net->row[k].served && total(&net->row[k]) < net->row[k].need && net_lift(net, k, floor))
            ;
}

/* Counts for ceil(t demand), from larger ones: the longer way gives first. */
static void trim(net_t *net, const int32_t *count, double t)
{
    set_counts(net, count);
    for (int32_t k = 0; k < net->rows; k++) {
        row_t *r = &net->row[k];
        if (!r->served) continue;
        double need = ceil(t * r->demand * (1 - 1e-11));
        int32_t extra = total(r) - (need < 1 ? 1 : (int32_t)need);
        r->need = total(r) - extra;
        for (int step = 0; step < DIRECTIONS && extra > 0; step++) {
            int d = step ? r->first : !r->first;
            int32_t x = extra < r->count[d] ? extra : r->count[d];
            r->count[d] -= x;
            extra -= x;
        }
    }
}

/* From the previous plan: keep what the new counts leave, move what is in the way. */
static int from_previous(net_t *net, const int32_t *need, double t, snapshot_t *target)
{
    int status;
    set_counts(net, need);
    net_occupy(net);
    net->continuous = 0;
    status = net_fill(net);
    net->continuous = 1;
    if (status != SIPRING_OK) return status;
    get_counts(net, target->count);
    net_keep(net, target->count);
    lift_to_need(net, t * NEARLY);
    status = net_climb(net, t);
    return status == SIPRING_OK ? net_fill(net) : status;
}

/* A number below `limit`, the same on every machine. */
static int32_t draw(uint32_t *state, int32_t limit)
{
    *state = *state * UINT32_C(1664525) + UINT32_C(1013904223);
    return (int32_t)((*state >> 8) % (uint32_t)limit);
}

static void shuffle(int32_t *order, int32_t many, uint32_t *state)
{
    for (int32_t k = 0; k < many; k++) order[k] = k;
    for (int32_t k = many - 1; k > 0; k--) {
        int32_t other = draw(state, k + 1), held = order[k];
        order[k] = order[other];
        order[other] = held;
    }
}

/* The fewest circuits of every served row [rows] that reach the goal. */
static void needs(const net_t *net, double goal, int32_t *need)
{
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        need[k] = r->served ? (int32_t)(goal * r->demand) : 0;
        while (r->served && need[k] / r->demand < goal) need[k]++;
    }
}

/* On small rings, where one circuit is a large part of the minimum: place what a minimum just above the best needs,
 * pair by pair in several orders, now and then in the longer direction first, and climb from there. The net is the best
 * before and after. */
static int retry(net_t *net, double ceiling, snapshot_t *best)
{
    int64_t w = net->ring->wavelengths[CW] + net->ring->wavelengths[CCW], images = net->ring->gpus / net->n;
    int64_t rounds = SMALL / (1 + images * net->rows * w);
    int32_t *order = malloc(sizeof(int32_t) * 2 * ((size_t)net->rows + 1));
    int32_t *need = order ? order + net->rows : NULL;
    double asked = 0;
    uint32_t state = 1;
    int status = SIPRING_OK, tried = 0;
    if (!order) return SIPRING_EMEMORY;
    for (; rounds > 0 && best->minimum > 0 && best->minimum < ceiling * NEARLY; rounds--) {
        double goal = best->minimum * (1 + 1e-9);
        if (goal > asked) {
            needs(net, goal, need);
            if (!net_may_fit(net, need)) break;
            asked = goal;
        }
        tried = 1;
        int lost = 0; /* a pair below the goal stays there: nobody else adds to it */
        net_clear(net);
        shuffle(order, net->rows, &state);
        for (int32_t k = 0; k < net->rows; k++) {
            row_t *r = &net->row[order[k]];
            int longer = draw(&state, 4) == 0;
            while (!lost && r->served && ratio(r) < goal &&
                   ((longer && net_add(net, order[k], !r->first)) || net_lift(net, order[k], goal)))
                ;
            lost = lost || (r->served && ratio(r) < goal);
        }
        if (lost || net_minimum(net) < goal) continue;
        if ((status = net_climb(net, ceiling)) != SIPRING_OK) break;
        save(net, best);
    }
    if (tried && status == SIPRING_OK) load(net, best);
    free(order);
    return status;
}

/* From nothing: colour what t asks for; if that leaves circuits out, a little less, until all fit. */
static int from_nothing(net_t *net, const int32_t *need, double t, snapshot_t *best)
{
    int32_t w = net->ring->wavelengths[CW] + net->ring->wavelengths[CCW], status = SIPRING_OK;
    int at_best = 0; /* the circuits of the net are those of `best` */
    w = (w + 1) / 2;
    for (int32_t margin = 0; t > 0 && margin < w; margin += 1 + margin / 4) {
        double lower = t * (1 - (double)margin / w);
        trim(net, need, lower);
        if ((status = net_colour(net)) != SIPRING_OK) return status;
        lift_to_need(net, lower * NEARLY);
        at_best = net_minimum(net) > best->minimum;
        if (at_best) save(net, best);
        if (net_minimum(net) >= lower * NEARLY) break;
    }
    if (best->minimum > 0) {
        if (!at_best) load(net, best);
    } else {
        status = net_admit(net);
    }
    if (status != SIPRING_OK) return status;
    if ((status = net_climb(net, t > 0 ? t : INFINITY)) != SIPRING_OK) return status;
    save(net, best);
    if ((status = retry(net, t > 0 ? t : INFINITY, best)) != SIPRING_OK) return status;
    if ((status = net_relabel(net)) != SIPRING_OK) return status;
    return net_fill(net);
}

static int solve_continuous(net_t *net, double t, int follow)
{
    snapshot_t kept = {.minimum = -1}, best = {.minimum = -1};
    int32_t *need = malloc(sizeof(int32_t) * DIRECTIONS * ((size_t)net->rows + 1));
    int status = need ? SIPRING_OK : SIPRING_EMEMORY;
    if (status != SIPRING_OK) goto done;
    get_counts(net, need);
    if (follow && t > 0) {
        if ((status = snapshot_alloc(net, &kept)) != SIPRING_OK) goto done;
        status = from_previous(net, need, t, &kept);
        save(net, &kept);
        if (status != SIPRING_OK || kept.minimum >= t * NEARLY) goto done;
    }
    if ((status = snapshot_alloc(net, &best)) != SIPRING_OK) goto done;
    status = from_nothing(net, need, t, &best);
    if (status == SIPRING_OK && kept.minimum >= net_minimum(net) * NEARLY) load(net, &kept);
done:
    free(need);
    snapshot_free(&kept);
    snapshot_free(&best);
    return status;
}

/* Raises the minimum of the counts, the continuity rule aside, and makes the counts the needs. */
static int climb_freely(net_t *net, double *minimum)
{
    int continuous = net->continuous, status;
    net->continuous = 0;
    status = net_climb(net, INFINITY);
    if (status == SIPRING_OK && net->flexible > 0) {
        snapshot_t best;
        status = snapshot_alloc(net, &best);
        if (status == SIPRING_OK) {
            save(net, &best);
            status = retry(net, INFINITY, &best);
        }
        snapshot_free(&best);
    }
    net->continuous = continuous;
    *minimum = net_minimum(net);
    for (int32_t k = 0; k < net->rows; k++) net->row[k].need = total(&net->row[k]);
    return status;
}

static int solve(net_t *net, int follow, double *ceiling)
{
    double t;
    int status = net_allocate(net, &t);
    if (status == SIPRING_OK && t == 0) {
        status = net_admit(net);
        if (status == SIPRING_OK) status = net_allocate(net, &t);
    }
    if (status != SIPRING_OK) return status;
    if (t > 0) {
        net_occupy(net);
        if ((status = climb_freely(net, &t)) != SIPRING_OK) return status;
    }
    *ceiling = t;
    if (net->continuous) return solve_continuous(net, t, follow);
    if (t == 0) {
        if ((status = net_admit(net)) != SIPRING_OK) return status;
        if ((status = climb_freely(net, ceiling)) != SIPRING_OK) return status;
    }
    return net_fill(net);
}

static void emit(const net_t *net, const sipring_circuits *previous, sipring_plan *plan)
{
    int64_t kept_in_all = 0;
    plan->pairs = plan->circuits = plan->unpaired = 0;
    for (int32_t row = 0; row < net->rows; row++) {
        const row_t *r = &net->row[row];
        int64_t p = plan->pairs, kept = 0;
        if (total(r) == 0) {
            if (r->asked >= 0) plan->unserved[plan->unpaired++] = r->asked;
            continue;
        }
        for (int d = 0; d < DIRECTIONS; d++) {
            const uint64_t *held = mask_of(net, net->held, row, d), *before = net->past ? mask_of(net, net->before, row, d) : NULL;
            for (int32_t w = 0; w < net->words; w++) {
                if (before) kept += count_bits(held[w] & before[w]);
                for (uint64_t bits = held[w]; bits; bits &= bits - 1) {
                    plan->pair[plan->circuits] = (int32_t)p;
                    plan->direction[plan->circuits] = d;
                    plan->index[plan->circuits++] = 64 * w + lowest_bit(bits);
                }
            }
            plan->count[DIRECTIONS * p + d] = r->count[d];
        }
        plan->src[p] = r->src;
        plan->dst[p] = r->dst;
        plan->demand[p] = r->demand;
        plan->kept[p] = (int32_t)kept;
        kept_in_all += kept;
        plan->pairs++;
    }
    plan->same = previous && previous->pairs == plan->pairs && previous->circuits == plan->circuits &&
                 kept_in_all == plan->circuits;
}

static int finish(net_t *net, const sipring_circuits *previous, sipring_plan *plan)
{
    net_restore(net);
    if (!net->continuous && net_assign_senders(net) != SIPRING_OK) return SIPRING_EMEMORY;
    emit(net, previous, plan);
    return SIPRING_OK;
}

int64_t sipring_numbers(int64_t rows, int64_t circuits, int64_t demands)
{
    return (3 + DIRECTIONS) * rows + 3 * circuits + demands;
}

void sipring_lay_out(sipring_plan *plan, int64_t rows, int64_t circuits, int32_t *numbers, double *demand)
{
    plan->src = numbers;
    plan->dst = plan->src + rows;
    plan->count = plan->dst + rows;
    plan->kept = plan->count + DIRECTIONS * rows;
    plan->pair = plan->kept + rows;
    plan->direction = plan->pair + circuits;
    plan->index = plan->direction + circuits;
    plan->unserved = plan->index + circuits;
    plan->demand = demand;
}

void sipring_capacities(int64_t pairs, const int32_t *count, const int32_t *kept, double gbps, double us,
                        double *pair_gbps, double *kept_gbps, double *dark_us)
{
    for (int64_t p = 0; p < pairs; p++) {
        int32_t all = count[DIRECTIONS * p] + count[DIRECTIONS * p + 1];
        pair_gbps[p] = all * gbps;
        kept_gbps[p] = kept[p] * gbps;
        dark_us[p] = kept[p] < all ? us : 0;
    }
}

int sipring_fast(const sipring_ring *ring, const sipring_demand *demand, const sipring_circuits *previous,
                 sipring_plan *plan)
{
    net_t net;
    int status = net_build(&net, ring, demand, previous, &plan->bad);
    if (status == SIPRING_OK) status = solve(&net, previous && previous->circuits > 0, &plan->ceiling);
    if (status == SIPRING_OK) status = finish(&net, previous, plan);
    net_free(&net);
    return status;
}

/* Takes over the circuits of `start`. */
static int adopt(net_t *net, const sipring_circuits *start, int64_t *bad)
{
    for (int64_t k = 0; k < start->circuits; k++) {
        int32_t row, low = 0, high = net->rows, d = start->direction[k], pair = start->pair[k];
        *bad = k;
        if (pair < 0 || pair >= start->pairs || d < CW || d > CCW) return SIPRING_ECIRCUITS;
        int64_t key = (int64_t)start->src[pair] * net->ring->gpus + start->dst[pair];
        while (low < high) {
            row = low + (high - low) / 2;
            if ((int64_t)net->row[row].src * net->ring->gpus + net->row[row].dst < key) low = row + 1;
            else high = row;
        }
        if (low == net->rows || net->row[low].src != start->src[pair] || net->row[low].dst != start->dst[pair] ||
            net->row[low].asked < 0 || net->row[low].hops[d] == 0)
            return SIPRING_ECIRCUITS;
        if (!net->continuous) {
            if (!net_add(net, low, d)) return SIPRING_ECONFLICT;
            continue;
        }
        if (start->index[k] < 0 || start->index[k] >= net->ring->wavelengths[d]) return SIPRING_ECIRCUITS;
        if (!net_idle(net, low, d, start->index[k])) return SIPRING_ECONFLICT;
        net_take(net, low, d, start->index[k]);
    }
    return SIPRING_OK;
}

int sipring_complete(const sipring_ring *ring, const sipring_demand *demand, const sipring_circuits *start,
                     const sipring_circuits *previous, sipring_plan *plan)
{
    net_t net;
    int status = net_build(&net, ring, demand, previous, &plan->bad);
    plan->ceiling = 0;
    if (status == SIPRING_OK) status = adopt(&net, start, &plan->bad);
    if (status == SIPRING_OK && net.continuous && previous) status = net_relabel(&net);
    if (status == SIPRING_OK) status = net_fill(&net);
    if (status == SIPRING_OK) status = finish(&net, previous, plan);
    net_free(&net);
    return status;
}

static int take_counts(net_t *net, const int32_t *count, int64_t *bad)
{
    int64_t left[DIRECTIONS]; /* what all segments hold: keeps every sum below within its type */
    for (int d = 0; d < DIRECTIONS; d++) left[d] = (int64_t)net->n * net->ring->wavelengths[d];
    for (int32_t k = 0; k < net->rows; k++) {
        row_t *r = &net->row[k];
        if (r->asked < 0) continue;
        *bad = r->asked;
        for (int d = 0; d < DIRECTIONS; d++) {
            r->count[d] = count[DIRECTIONS * r->asked + d];
            if (r->count[d] < 0 || (r->count[d] > 0 && r->hops[d] == 0)) return SIPRING_ECIRCUITS;
            if (r->count[d] > net->ring->wavelengths[d] || (left[d] -= r->count[d]) < 0) return SIPRING_ECONFLICT;
        }
        r->need = total(r);
    }
    net_occupy(net);
    for (int d = 0; d < DIRECTIONS; d++)
        for (int32_t s = 0; s < net->n; s++)
            if (net->room[d][s] < 0) return SIPRING_ECONFLICT;
    return SIPRING_OK;
}

int sipring_colour(const sipring_ring *ring, const sipring_demand *demand, const int32_t *count,
                   const sipring_circuits *previous, sipring_plan *plan)
{
    net_t net;
    int status = net_build(&net, ring, demand, previous, &plan->bad);
    plan->ceiling = 0;
    if (status == SIPRING_OK) status = take_counts(&net, count, &plan->bad);
    if (status == SIPRING_OK && net.continuous) {
        status = net_colour(&net);
        if (status == SIPRING_OK) {
            lift_to_need(&net, INFINITY);
            status = net_relabel(&net);
        }
    }
    if (status == SIPRING_OK) status = net_fill(&net);
    if (status == SIPRING_OK) status = finish(&net, previous, plan);
    net_free(&net);
    return status;
}

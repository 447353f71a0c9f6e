/* The planner of the ring without Python, for sanitizers: laws on random traffic, repeated planning, and every
 * refusal. Arrays are allocated at the length that ring.h asks for, so that one element too far is seen.
 * Prints what fails and returns whether something did. */
#include "draw.h"
#include "expect.h"
#include "ring.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The same circuits or demands in arrays of their own, writable. */
typedef struct {
    int64_t pairs, circuits;
    int32_t *src, *dst, *waited, *pair, *direction, *index;
    double *demand;
} rows;

static rows rows_new(int64_t pairs, int64_t circuits)
{
    rows r = {pairs, circuits, array(pairs, 4), array(pairs, 4), array(pairs, 4), array(circuits, 4),
              array(circuits, 4), array(circuits, 4), array(pairs, sizeof(double))};
    return r;
}

static void rows_free(rows *r)
{
    void *all[] = {r->src, r->dst, r->waited, r->pair, r->direction, r->index, r->demand};
    for (int k = 0; k < 7; k++) free(all[k]);
}

static sipring_demand demand_of(const rows *r)
{
    sipring_demand d = {r->pairs, r->src, r->dst, r->demand, r->waited};
    return d;
}

static sipring_circuits circuits_of(const rows *r)
{
    sipring_circuits c = {r->pairs, r->src, r->dst, r->circuits, r->pair, r->direction, r->index};
    return c;
}

static sipring_plan plan_new(const sipring_ring *g, int64_t demanded, int64_t before)
{
    int64_t most = demanded + before, circuits = (int64_t)g->gpus * (g->wavelengths[0] + g->wavelengths[1]);
    sipring_plan p = {.src = array(most, 4), .dst = array(most, 4), .demand = array(most, sizeof(double))};
    p.count = array(2 * most, 4);
    p.kept = array(most, 4);
    p.pair = array(circuits, 4);
    p.direction = array(circuits, 4);
    p.index = array(circuits, 4);
    p.unserved = array(demanded, 4);
    return p;
}

static void plan_free(sipring_plan *p)
{
    void *all[] = {p->src, p->dst, p->demand, p->count, p->kept, p->pair, p->direction, p->index, p->unserved};
    for (int k = 0; k < 9; k++) free(all[k]);
}

static sipring_circuits planned(const sipring_plan *p)
{
    sipring_circuits c = {p->pairs, p->src, p->dst, p->circuits, p->pair, p->direction, p->index};
    return c;
}

static rows rows_of_plan(const sipring_plan *p)
{
    rows r = rows_new(p->pairs, p->circuits);
    for (int64_t k = 0; k < p->pairs; k++) {
        r.src[k] = p->src[k];
        r.dst[k] = p->dst[k];
    }
    for (int64_t k = 0; k < p->circuits; k++) {
        r.pair[k] = p->pair[k];
        r.direction[k] = p->direction[k];
        r.index[k] = p->index[k];
    }
    return r;
}

/* Of the ring, or of one period of a folded one. */
static int32_t segments(const sipring_ring *g) { return g->period > 0 ? g->period : g->gpus; }

static int32_t hops(const sipring_ring *g, int d, int32_t src, int32_t dst)
{
    return (d ? src - dst + g->gpus : dst - src + g->gpus) % g->gpus;
}

static int reaches(const sipring_ring *g, int d, int32_t src, int32_t dst)
{
    return g->wavelengths[d] > 0 && hops(g, d, src, dst) <= g->reach_hops;
}

/* Each pair within reach with a chance of `percent`; demands over nine powers of ten, or only two. */
static rows draw_traffic(const sipring_ring *g, int percent, uint64_t *seed)
{
    int32_t n = g->gpus, tied = below(seed, 2);
    uint8_t *wanted = array((int64_t)n * n, 1);
    int64_t pairs = 0, p = 0;
    for (int32_t k = 0; k < segments(g) * n; k++)
        pairs += wanted[k] = k / n != k % n && (reaches(g, 0, k / n, k % n) || reaches(g, 1, k / n, k % n)) &&
                             below(seed, 100) < percent;
    rows r = rows_new(pairs, 0);
    for (int32_t k = 0; k < segments(g) * n; k++) {
        if (!wanted[k]) continue;
        r.src[p] = k / n;
        r.dst[p] = k % n;
        r.waited[p] = below(seed, 4) ? below(seed, 3) : INT32_MAX - below(seed, 2);
        r.demand[p++] = tied ? 1 + below(seed, 2) : (1 + below(seed, 1000)) * pow(10, below(seed, 9) - 3);
    }
    free(wanted);
    return r;
}

/* Demands change, by up to a half or not at all, and some pairs are gone. */
static void drift(rows *r, uint64_t *seed)
{
    int64_t left = 0, still = below(seed, 2);
    for (int64_t p = 0; p < r->pairs; p++) {
        if (below(seed, 8) == 0) continue;
        r->src[left] = r->src[p];
        r->dst[left] = r->dst[p];
        r->waited[left] = below(seed, 3);
        r->demand[left++] = r->demand[p] * (still ? 1 : 0.5 + 0.1 * below(seed, 11));
    }
    r->pairs = left;
}

/* What a plan occupies. used: continuous, by segment and index; converted, by sender and index. */
typedef struct {
    int32_t width, *load[2]; /* [n] */
    uint8_t *used[2];        /* [n][width] */
} fibres;

/* Lights every circuit; none twice, none beyond the reach or the wavelengths. */
static fibres light(const sipring_ring *g, const sipring_circuits *c)
{
    fibres f = {.width = g->wavelengths[0] > g->wavelengths[1] ? g->wavelengths[0] : g->wavelengths[1]};
    for (int d = 0; d < 2; d++) {
        f.load[d] = array(g->gpus, 4);
        f.used[d] = array((int64_t)g->gpus * f.width, 1);
    }
    for (int64_t k = 0; k < c->circuits; k++) {
        int32_t d = c->direction[k], index = c->index[k], src = c->src[c->pair[k]], dst = c->dst[c->pair[k]];
        EXPECT((d == 0 || d == 1) && index >= 0 && index < g->wavelengths[d] && reaches(g, d, src, dst));
        if (!g->continuous) EXPECT(!f.used[d][src * f.width + index]++);
        for (int32_t h = 0; h < hops(g, d, src, dst); h++) {
            int32_t s = ((d ? dst : src) + h) % segments(g);
            EXPECT(++f.load[d][s] <= g->wavelengths[d]);
            if (g->continuous) EXPECT(!f.used[d][s * f.width + index]++);
        }
    }
    return f;
}

static void fibres_free(fibres *f)
{
    for (int d = 0; d < 2; d++) {
        free(f->load[d]);
        free(f->used[d]);
    }
}

/* Could one more circuit be lit? */
static int idle(const sipring_ring *g, const fibres *f, int d, int32_t src, int32_t dst)
{
    int32_t room = 1, from = d ? dst : src, far = hops(g, d, src, dst);
    if (!reaches(g, d, src, dst)) return 0;
    for (int32_t h = 0; h < far; h++) room &= f->load[d][(from + h) % segments(g)] < g->wavelengths[d];
    if (!room || !g->continuous) return room;
    for (int32_t index = 0; index < g->wavelengths[d]; index++) {
        int32_t h = 0;
        while (h < far && !f->used[d][(from + h) % segments(g) * f->width + index]) h++;
        if (h == far) return 1;
    }
    return 0;
}

/* seen[(pair, direction, index)]: does the plan before have the circuit? A pair is src gpus + dst. */
static uint8_t *past(const sipring_ring *g, const sipring_circuits *c, int32_t width)
{
    uint8_t *seen = array((int64_t)g->gpus * g->gpus * 2 * width, 1);
    for (int64_t k = 0; c && k < c->circuits; k++) {
        int32_t cell = c->src[c->pair[k]] * g->gpus + c->dst[c->pair[k]];
        seen[(2 * cell + c->direction[k]) * width + c->index[k]] = 1;
    }
    return seen;
}

/* Rows ascend, and their counts are those of their circuits, which ascend too; kept ones really are in `before`. */
static void check_rows(const sipring_ring *g, const sipring_circuits *before, const sipring_plan *p, int32_t width)
{
    uint8_t *seen = past(g, before, width);
    int64_t k = 0;
    for (int64_t row = 0; row < p->pairs; row++) {
        int32_t cell = p->src[row] * g->gpus + p->dst[row], count[2] = {0, 0}, kept = 0;
        EXPECT(row == 0 || cell > p->src[row - 1] * g->gpus + p->dst[row - 1]);
        for (; k < p->circuits && p->pair[k] == row; k++) {
            int32_t d = p->direction[k];
            EXPECT(!count[0] + !count[1] == 2 || d > p->direction[k - 1] ||
                   (d == p->direction[k - 1] && p->index[k] > p->index[k - 1]));
            count[d]++;
            kept += seen[(2 * cell + d) * width + p->index[k]];
        }
        EXPECT(count[0] == p->count[2 * row] && count[1] == p->count[2 * row + 1] && count[0] + count[1] > 0);
        EXPECT(kept == p->kept[row]);
        EXPECT(p->demand[row] > 0 || kept == count[0] + count[1]); /* nobody asked: only what was there */
    }
    EXPECT(k == p->circuits);
    free(seen);
}

/* A demand has a row or is listed as unserved, and nothing that it could use is idle. */
static void check_service(const sipring_ring *g, const rows *r, const sipring_plan *p, const fibres *f)
{
    int64_t row = 0, missing = 0, demanded = 0;
    for (int64_t k = 0; k < r->pairs; k++) {
        while (row < p->pairs && p->src[row] * g->gpus + p->dst[row] < r->src[k] * g->gpus + r->dst[k]) row++;
        if (row < p->pairs && p->src[row] == r->src[k] && p->dst[row] == r->dst[k]) {
            EXPECT(p->demand[row] == r->demand[k]);
            demanded++;
        } else {
            EXPECT(missing < p->unpaired && p->unserved[missing] == k);
            missing++;
        }
        for (int d = 0; d < 2; d++) EXPECT(!idle(g, f, d, r->src[k], r->dst[k]));
    }
    EXPECT(missing == p->unpaired);
    for (row = 0; row < p->pairs; row++) demanded -= p->demand[row] > 0;
    EXPECT(demanded == 0);
}

/* The check of the plugin accepts the plan, and refuses it with one circuit lit twice. */
static void check_check(const sipring_ring *g, const sipring_plan *p)
{
    rows twice = rows_of_plan(p);
    sipring_circuits c = planned(p);
    int64_t bad = -1;
    EXPECT(sipring_check(g, &c, &bad) == SIPRING_OK);
    if (p->circuits > 1) {
        int64_t last = p->circuits - 1;
        twice.pair[last] = twice.pair[0];
        twice.direction[last] = twice.direction[0];
        twice.index[last] = twice.index[0];
        c = circuits_of(&twice);
        EXPECT(sipring_check(g, &c, &bad) == SIPRING_ECONFLICT && bad == last);
    }
    rows_free(&twice);
}

/* Capacities of 25 for each circuit pass; one that its pair has no circuit for, or that is lit beyond it, does not. */
static void check_capacities(const sipring_ring *g, const sipring_plan *p)
{
    double *gbps = array(p->pairs, sizeof *gbps), *kept = array(p->pairs, sizeof *kept), *dark = array(p->pairs, sizeof *dark);
    sipring_circuits c = planned(p);
    int64_t bad, last = p->pairs - 1;
    sipring_capacities(p->pairs, p->count, p->kept, 25, 5, gbps, kept, dark);
    EXPECT(sipring_check_plan(g, &c, 25, gbps, kept, dark, &bad) == SIPRING_OK);
    for (int64_t k = 0; k < p->pairs; k++) {
        EXPECT(gbps[k] == 25 * (p->count[2 * k] + p->count[2 * k + 1]) && kept[k] == 25 * p->kept[k]);
        EXPECT(dark[k] == (kept[k] < gbps[k] ? 5 : 0));
    }
    if (last >= 0) {
        EXPECT(sipring_check_plan(g, &c, 10, gbps, kept, dark, &bad) == SIPRING_ECIRCUITS && bad == 0);
        kept[last] = gbps[last] + 1;
        EXPECT(sipring_check_plan(g, &c, 25, gbps, kept, dark, &bad) == SIPRING_ECIRCUITS && bad == last);
    }
    free(gbps);
    free(kept);
    free(dark);
}

static void check_plan(const sipring_ring *g, const rows *r, const sipring_circuits *before, const sipring_plan *p)
{
    sipring_circuits c = planned(p);
    fibres f = light(g, &c);
    check_rows(g, before, p, f.width);
    check_service(g, r, p, &f);
    check_check(g, p);
    check_capacities(g, p);
    fibres_free(&f);
}

static int32_t count_of(const sipring_plan *p, int32_t src, int32_t dst, int d)
{
    for (int64_t row = 0; row < p->pairs; row++)
        if (p->src[row] == src && p->dst[row] == dst) return p->count[2 * row + d];
    return 0;
}

/* Adopts the demanded half of `plan`: no pair has fewer circuits than before, and without a past none moves. */
static void complete(const sipring_ring *g, const rows *r, const sipring_circuits *before, const sipring_plan *plan)
{
    rows half = rows_of_plan(plan);
    sipring_demand demand = demand_of(r);
    int64_t left = 0, bad = before ? before->pairs : 0;
    sipring_plan p = plan_new(g, r->pairs, bad);
    for (int64_t k = 0; k < half.circuits; k += 1 + k % 2) {
        if (plan->demand[half.pair[k]] == 0) continue;
        half.pair[left] = half.pair[k];
        half.direction[left] = half.direction[k];
        half.index[left++] = half.index[k];
    }
    half.circuits = left;
    sipring_circuits start = circuits_of(&half);
    EXPECT(sipring_complete(g, &demand, &start, before, &p) == SIPRING_OK);
    check_plan(g, r, before, &p);
    for (int64_t k = 0, same = 0; k < left; k += same, same = 0) {
        int32_t src = half.src[half.pair[k]], dst = half.dst[half.pair[k]], d = half.direction[k];
        while (k + same < left && half.pair[k + same] == half.pair[k] && half.direction[k + same] == d) same++;
        EXPECT(count_of(&p, src, dst, d) >= same);
    }
    if (g->continuous && !before) {
        int32_t width = g->wavelengths[0] + g->wavelengths[1];
        sipring_circuits now = planned(&p);
        uint8_t *seen = past(g, &now, width);
        for (int64_t k = 0; k < left; k++) {
            int32_t cell = half.src[half.pair[k]] * g->gpus + half.dst[half.pair[k]];
            EXPECT(seen[(2 * cell + half.direction[k]) * width + half.index[k]]);
        }
        free(seen);
    }
    rows_free(&half);
    plan_free(&p);
}

/* The numbers of `plan` without its indices; with converters every one of them fits again. */
static void colour(const sipring_ring *g, const rows *r, const sipring_circuits *before, const sipring_plan *plan)
{
    int32_t *count = array(2 * r->pairs, 4);
    sipring_demand demand = demand_of(r);
    sipring_plan p = plan_new(g, r->pairs, before ? before->pairs : 0);
    for (int64_t k = 0, row = 0; k < r->pairs; k++) {
        while (row < plan->pairs && plan->src[row] * g->gpus + plan->dst[row] < r->src[k] * g->gpus + r->dst[k]) row++;
        if (row == plan->pairs || plan->src[row] != r->src[k] || plan->dst[row] != r->dst[k]) continue;
        for (int d = 0; d < 2; d++) count[2 * k + d] = plan->count[2 * row + d];
    }
    EXPECT(sipring_colour(g, &demand, count, before, &p) == SIPRING_OK);
    check_plan(g, r, before, &p);
    for (int64_t k = 0; !g->continuous && k < r->pairs; k++)
        for (int d = 0; d < 2 && count[2 * k + d]; d++)
            EXPECT(count_of(&p, r->src[k], r->dst[k], d) >= count[2 * k + d]);
    free(count);
    plan_free(&p);
}

/* Plans three times with drifting demands, each time from the plan before, and checks every plan. */
static void test_planning(sipring_ring g, int percent, uint64_t seed)
{
    rows r = draw_traffic(&g, percent, &seed), old = rows_new(0, 0);
    for (int again = 0; again < 3; again++) {
        sipring_circuits before = circuits_of(&old), *previous = again ? &before : NULL;
        sipring_demand demand = demand_of(&r);
        sipring_plan p = plan_new(&g, r.pairs, old.pairs), twin = plan_new(&g, r.pairs, old.pairs);
        double least = INFINITY;
        if (again == 2) demand.waited = NULL;
        EXPECT(sipring_fast(&g, &demand, previous, &p) == SIPRING_OK);
        check_plan(&g, &r, previous, &p);
        for (int64_t row = 0; row < p.pairs; row++)
            if (p.demand[row] > 0) least = fmin(least, (p.count[2 * row] + p.count[2 * row + 1]) / p.demand[row]);
        EXPECT(p.unpaired || r.pairs == 0 || least <= p.ceiling * (1 + 1e-6));
        if (again == 1) { /* the same input, the same plan */
            EXPECT(sipring_fast(&g, &demand, previous, &twin) == SIPRING_OK);
            EXPECT(p.circuits == twin.circuits && p.ceiling == twin.ceiling);
        }
        for (int64_t k = 0; again == 1 && k < p.circuits && k < twin.circuits; k++)
            EXPECT(p.pair[k] == twin.pair[k] && p.direction[k] == twin.direction[k] && p.index[k] == twin.index[k]);
        complete(&g, &r, previous, &p);
        colour(&g, &r, previous, &p);
        rows_free(&old);
        old = rows_of_plan(&p);
        plan_free(&p);
        plan_free(&twin);
        drift(&r, &seed);
    }
    rows_free(&r);
    rows_free(&old);
}

/* With an argument the GPUs on the way convert wavelengths. */
int main(int arguments, char **unread)
{
    const int32_t gpus[] = {1, 2, 3, 5}, wavelengths[][2] = {{1, 1}, {2, 2}, {3, 0}, {0, 1}, {7, 3}, {64, 65}};
    const int continuous = arguments < 2;
    (void)unread;
    for (int n = 0; n < 4; n++)
        for (int w = 0; w < 6; w++)
            for (int32_t reach = 1; reach <= gpus[n]; reach += 2) {
                sipring_ring g = {gpus[n], {wavelengths[w][0], wavelengths[w][1]}, reach, continuous, 0};
                test_planning(g, 70, (uint64_t)(1 + 100 * n + 10 * w + reach));
            }
    test_planning((sipring_ring){3, {2, 2}, 2, continuous, 0}, 0, 2); /* nobody asks */
    test_planning((sipring_ring){12, {3, 3}, 11, continuous, 0}, 90, 3); /* more peers than circuits */
    test_planning((sipring_ring){64, {4, 5}, 20, continuous, 0}, 4, 4);
    test_planning((sipring_ring){64, {1, 2}, 7, continuous, 0}, 60, 5);
    test_planning((sipring_ring){256, {5, 9}, 3, continuous, 0}, 70, 6);
    test_planning((sipring_ring){256, {9, 16}, 30, continuous, 0}, 2, 7);
    test_planning((sipring_ring){64, {4, 5}, 16, continuous, 16}, 60, 8); /* folded */
    test_planning((sipring_ring){64, {9, 70}, 8, continuous, 16}, 30, 9);
    test_planning((sipring_ring){3, {2, 3}, 1, continuous, 1}, 100, 10);
    test_planning((sipring_ring){60, {40, 41}, 5, continuous, 6}, 80, 11);
    return failures != 0;
}

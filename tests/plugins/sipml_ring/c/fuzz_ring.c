/* Every kernel of the ring on valid input of which a few values were changed: it returns a code that ring.h names, and a
 * plan that it made from a sound previous one is possible. The sanitizers see the rest. */
#include "draw.h"
#include "expect.h"
#include "ring.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 1000, MOST_GPUS = 14, MOST_PAIRS = MOST_GPUS * (MOST_GPUS - 1), MOST_WAVELENGTHS = 70, CIRCUITS = 40 };

/* Input of one round, in arrays that are as long as the kernel is told. */
typedef struct {
    sipring_ring ring;
    int64_t pairs, before, circuits;
    int32_t *src, *dst, *waited, *count; /* [pairs], count [pairs][2] */
    double *demand;
    int32_t *old_src, *old_dst;        /* [before] */
    int32_t *pair, *direction, *index; /* [circuits] */
} input;

static int64_t draw_pairs(int32_t starts, int32_t gpus, int percent, int32_t *src, int32_t *dst, uint64_t *seed)
{
    int64_t many = 0;
    for (int32_t i = 0; i < starts; i++)
        for (int32_t j = 0; j < gpus; j++)
            if (i != j && below(seed, 100) < percent) {
                src[many] = i;
                dst[many++] = j;
            }
    return many;
}

static int32_t *copy(const int32_t *values, int64_t length)
{
    int32_t *a = array(length, sizeof *a);
    if (length) memcpy(a, values, (size_t)length * sizeof *a);
    return a;
}

static input input_new(uint64_t *seed)
{
    int32_t src[MOST_PAIRS], dst[MOST_PAIRS], n = 1 + below(seed, MOST_GPUS), percent = 10 + below(seed, 90);
    input in = {.ring = {n, {1 + below(seed, MOST_WAVELENGTHS), below(seed, MOST_WAVELENGTHS)}, n, below(seed, 2), 0}};
    in.pairs = draw_pairs(n, n, percent, src, dst, seed);
    in.src = copy(src, in.pairs);
    in.dst = copy(dst, in.pairs);
    in.before = draw_pairs(n, n, percent, src, dst, seed);
    in.old_src = copy(src, in.before);
    in.old_dst = copy(dst, in.before);
    in.circuits = in.before ? below(seed, CIRCUITS) : 0;
    in.waited = array(in.pairs, 4);
    in.count = array(2 * in.pairs, 4);
    in.demand = array(in.pairs, sizeof(double));
    in.pair = array(in.circuits, 4);
    in.direction = array(in.circuits, 4);
    in.index = array(in.circuits, 4);
    for (int64_t k = 0; k < in.pairs; k++) {
        in.waited[k] = below(seed, 3);
        in.demand[k] = 1 + below(seed, 1000);
        in.count[2 * k] = below(seed, 8) == 0;
    }
    for (int64_t k = 0; k < in.circuits; k++) {
        in.pair[k] = below(seed, (int)in.before);
        in.direction[k] = in.ring.wavelengths[1] > 0 ? below(seed, 2) : 0;
        in.index[k] = below(seed, in.ring.wavelengths[in.direction[k]]);
    }
    return in;
}

static void input_free(input *in)
{
    void *all[] = {in->src, in->dst, in->waited, in->count, in->demand, in->old_src, in->old_dst, in->pair,
                   in->direction, in->index};
    for (int k = 0; k < 10; k++) free(all[k]);
}

/* A number at or just outside the edge of what is allowed. */
static int32_t odd_number(uint64_t *seed)
{
    const int32_t numbers[] = {INT32_MIN, -1, 0, 1, 2, MOST_GPUS, 63, 64, SIPRING_MAX_WAVELENGTHS + 1, INT32_MAX};
    return numbers[below(seed, 10)];
}

static void spoil_one(int32_t *values, int64_t length, uint64_t *seed)
{
    if (length) values[below(seed, (int)length)] = odd_number(seed);
}

/* Changes one value. The ring stays of a size that a plan can be allocated for. */
static void spoil(input *in, uint64_t *seed)
{
    const double odd[] = {0, -1, NAN, INFINITY, 1e-308, 1e-200, 1e300};
    switch (below(seed, 13)) {
    case 0: in->ring.gpus += below(seed, 3) - 1; break;
    case 1: in->ring.wavelengths[below(seed, 2)] = below(seed, 3) - 1; break;
    case 2: in->ring.reach_hops = odd_number(seed); break;
    case 3: in->ring.period = below(seed, 2) ? odd_number(seed) : in->ring.gpus / 2; break;
    case 4: spoil_one(in->src, in->pairs, seed); break;
    case 5: spoil_one(in->dst, in->pairs, seed); break;
    case 6: spoil_one(in->waited, in->pairs, seed); break;
    case 7: spoil_one(in->count, 2 * in->pairs, seed); break;
    case 8: if (in->pairs) in->demand[below(seed, (int)in->pairs)] = odd[below(seed, 7)]; break;
    case 9: spoil_one(in->old_src, in->before, seed); break;
    case 10: spoil_one(in->old_dst, in->before, seed); break;
    case 11: spoil_one(in->pair, in->circuits, seed); break;
    default: spoil_one(below(seed, 2) ? in->direction : in->index, in->circuits, seed);
    }
}

static int known(int status) { return status <= SIPRING_OK && status >= SIPRING_ECONFLICT; }

/* Wavelengths over a demand must not overflow: a condition that the caller keeps. */
static int demands_can_be_divided_by(const input *in)
{
    for (int64_t k = 0; k < in->pairs; k++)
        if (in->demand[k] > 0 && in->demand[k] < 1e-200) return 0;
    return 1;
}

static void run(const input *in, uint64_t *seed)
{
    int64_t rows = in->pairs + in->before, bad = 0;
    int64_t lit = (int64_t)(in->ring.gpus > 0 ? in->ring.gpus : 0) * 2 * MOST_WAVELENGTHS;
    sipring_demand demand = {in->pairs, in->src, in->dst, in->demand, below(seed, 2) ? in->waited : NULL};
    sipring_circuits old = {in->before, in->old_src, in->old_dst, in->circuits, in->pair, in->direction, in->index};
    int sound = sipring_check(&in->ring, &old, &bad), status;
    sipring_plan plan = {.src = array(rows, 4), .dst = array(rows, 4), .demand = array(rows, sizeof(double)),
                         .count = array(2 * rows, 4), .kept = array(rows, 4), .pair = array(lit, 4),
                         .direction = array(lit, 4), .index = array(lit, 4), .unserved = array(in->pairs, 4)};
    EXPECT(known(sound));

    /* A previous plan or start that is not possible breaks the contract: only whoever checks it may pass it on. */
    const sipring_circuits *previous = sound == SIPRING_OK && below(seed, 4) ? &old : NULL;
    if (!demands_can_be_divided_by(in)) status = SIPRING_EPAIRS;
    else if (below(seed, 3) == 0) status = sipring_colour(&in->ring, &demand, in->count, previous, &plan);
    else if (previous && below(seed, 3) == 0) status = sipring_complete(&in->ring, &demand, &old, previous, &plan);
    else status = sipring_fast(&in->ring, &demand, previous, &plan);
    EXPECT(known(status));
    if (status == SIPRING_OK) {
        sipring_circuits made = {plan.pairs, plan.src, plan.dst, plan.circuits, plan.pair, plan.direction, plan.index};
        EXPECT(sipring_check(&in->ring, &made, &bad) == SIPRING_OK);
    }
    void *all[] = {plan.src, plan.dst, plan.demand, plan.count, plan.kept, plan.pair, plan.direction, plan.index,
                   plan.unserved};
    for (int k = 0; k < 9; k++) free(all[k]);
}

int main(void)
{
    uint64_t seed = 12;
    for (int k = 0; k < ROUNDS; k++) {
        input in = input_new(&seed);
        for (int spoiled = below(&seed, 3); spoiled > 0; spoiled--) spoil(&in, &seed);
        run(&in, &seed);
        input_free(&in);
    }
    return failures > 0;
}

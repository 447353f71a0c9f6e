/* net_climb ends with the circuits that it ends with step by step, also where its steps go in circles until they are used
 * up: where a pair without a circuit takes the last one of another, which takes it back. */
#include "draw.h"
#include "expect.h"
#include "net.h"

#include <math.h>
#include <string.h>

enum { ROUNDS = 60, MOST_GPUS = 8, MOST_PAIRS = MOST_GPUS * (MOST_GPUS - 1) };

/* The definition; returns 1 if all steps were used up. */
static int climb_by_steps(net_t *net)
{
    int64_t steps = 200 + 4000000 / (net->rows + 1);
    for (int64_t step = 0; step < steps; step++) {
        int32_t worst = -1;
        for (int32_t k = 0; k < net->rows; k++)
            if (net->row[k].served && (worst < 0 || ratio(&net->row[k]) < ratio(&net->row[worst]))) worst = k;
        if (worst < 0 || !net_lift(net, worst, ratio(&net->row[worst]) * (1 + 1e-9))) return 0;
    }
    return 1;
}

static int try_ring(uint64_t *seed)
{
    int32_t src[MOST_PAIRS], dst[MOST_PAIRS], pairs = 0, looped;
    double *demand = array(MOST_PAIRS, sizeof *demand);
    int64_t bad;
    net_t nets[2];
    sipring_ring ring = {.gpus = 4 + below(seed, MOST_GPUS - 3), .wavelengths = {1 + below(seed, 3), 1 + below(seed, 3)},
                         .continuous = 1};
    ring.reach_hops = 1 + below(seed, ring.gpus - 1);
    for (int32_t i = 0; i < ring.gpus; i++)
        for (int32_t j = 0; j < ring.gpus; j++) {
            int32_t hops = hops_to(ring.gpus, i, j);
            if (i == j || (hops > ring.reach_hops && ring.gpus - hops > ring.reach_hops)) continue;
            src[pairs] = i;
            dst[pairs] = j;
            demand[pairs++] = 1 + below(seed, 4);
        }
    sipring_demand asked = {pairs, src, dst, demand, NULL};
    for (int k = 0; k < 2; k++) EXPECT(net_build(&nets[k], &ring, &asked, NULL, &bad) == SIPRING_OK);
    for (int tries = below(seed, 3 * pairs); tries > 0; tries--) {
        int32_t row = below(seed, pairs), d = below(seed, 2);
        EXPECT(net_add(&nets[0], row, d) == net_add(&nets[1], row, d));
    }
    looped = climb_by_steps(&nets[0]);
    EXPECT(net_climb(&nets[1], INFINITY) == SIPRING_OK);
    size_t masks = (size_t)pairs * DIRECTIONS * (size_t)nets[0].words;
    EXPECT(memcmp(nets[0].held, nets[1].held, sizeof(uint64_t) * masks) == 0);
    for (int32_t k = 0; k < pairs; k++) EXPECT(total(&nets[0].row[k]) == total(&nets[1].row[k]));
    for (int k = 0; k < 2; k++) net_free(&nets[k]);
    free(demand);
    return looped;
}

int main(void)
{
    uint64_t seed = 7;
    int looped = 0;
    for (int k = 0; k < ROUNDS; k++) looped += try_ring(&seed);
    EXPECT(looped >= 3);
    EXPECT(looped < ROUNDS);
    return failures > 0;
}

/* What net_may_fit refuses cannot fit: planners stop there without trying. Needs that random circuits meet pass, whatever
 * the directions and the rule; needs beyond what leaves a node do not. */
#include "draw.h"
#include "expect.h"
#include "net.h"

#include <string.h>

enum { ROUNDS = 3000, MOST_GPUS = 16, MOST_PAIRS = MOST_GPUS * (MOST_GPUS - 1) };

static int64_t draw_pairs(const sipring_ring *g, int percent, int32_t *src, int32_t *dst, uint64_t *seed)
{
    int64_t many = 0;
    for (int32_t i = 0; i < g->gpus; i++)
        for (int32_t j = 0; j < g->gpus; j++) {
            int32_t hops = hops_to(g->gpus, i, j);
            int reaches = hops <= g->reach_hops || (g->wavelengths[CCW] > 0 && g->gpus - hops <= g->reach_hops);
            if (i == j || !reaches || below(seed, 100) >= percent) continue;
            src[many] = i;
            dst[many++] = j;
        }
    return many;
}

static void try_ring(uint64_t *seed)
{
    int32_t src[MOST_PAIRS], dst[MOST_PAIRS];
    sipring_ring ring = {.gpus = 2 + below(seed, MOST_GPUS - 1), .wavelengths = {1 + below(seed, 9), below(seed, 9)}};
    ring.reach_hops = 1 + below(seed, ring.gpus);
    ring.continuous = below(seed, 2);
    int64_t pairs = draw_pairs(&ring, 10 + below(seed, 90), src, dst, seed);
    int32_t *need = array(pairs, sizeof *need);
    double *demand = array(pairs, sizeof *demand);
    for (int64_t k = 0; k < pairs; k++) demand[k] = 1;
    sipring_demand asked = {pairs, src, dst, demand, NULL};
    int64_t bad;
    net_t net;
    EXPECT(net_build(&net, &ring, &asked, NULL, &bad) == SIPRING_OK);
    for (int tries = below(seed, 400); tries > 0 && net.rows > 0; tries--)
        net_add(&net, below(seed, net.rows), below(seed, 2));
    for (int32_t k = 0; k < net.rows; k++) need[k] = total(&net.row[k]);
    EXPECT(net_may_fit(&net, need));
    if (net.rows > 0) {
        int32_t row = below(seed, net.rows);
        const row_t *r = &net.row[row];
        int32_t most = (r->hops[CW] > 0 ? ring.wavelengths[CW] : 0) + (r->hops[CCW] > 0 ? ring.wavelengths[CCW] : 0);
        memset(need, 0, (size_t)pairs * sizeof *need);
        need[row] = most;
        EXPECT(net_may_fit(&net, need));
        need[row] = most + 1;
        EXPECT(!net_may_fit(&net, need));
    }
    net_free(&net);
    free(need);
    free(demand);
}

int main(void)
{
    uint64_t seed = 56;
    for (int k = 0; k < ROUNDS; k++) try_ring(&seed);
    return failures > 0;
}

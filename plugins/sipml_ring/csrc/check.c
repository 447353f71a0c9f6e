/* Is a set of circuits physically possible? Independent of the planner: it shares no code with it. */
#include <stdlib.h>
#include <string.h>

#include "ring.h"

static int32_t segments(const sipring_ring *g) { return g->period > 0 ? g->period : g->gpus; }

static int ring_ok(const sipring_ring *g)
{
    if (g->period < 0 || g->period > g->gpus || (g->period > 0 && g->gpus % g->period)) return 0;
    if (segments(g) < g->gpus && segments(g) < g->reach_hops) return 0;
    int32_t clockwise = g->wavelengths[0], counter = g->wavelengths[1];
    return g->gpus >= 1 && g->reach_hops >= 1 && clockwise >= 0 && counter >= 0 && (clockwise > 0 || counter > 0) &&
           clockwise <= SIPRING_MAX_WAVELENGTHS && counter <= SIPRING_MAX_WAVELENGTHS;
}

static int shape_ok(const sipring_ring *g, const sipring_circuits *c, int64_t k)
{
    int32_t pair = c->pair[k];
    if (pair < 0 || pair >= c->pairs || c->direction[k] < 0 || c->direction[k] > 1) return 0;
    int32_t src = c->src[pair], dst = c->dst[pair];
    if (src < 0 || src >= segments(g) || dst < 0 || dst >= g->gpus || src == dst) return 0;
    int32_t clockwise = (dst - src + g->gpus) % g->gpus;
    return (c->direction[k] == 0 ? clockwise : g->gpus - clockwise) <= g->reach_hops && c->index[k] >= 0 &&
           c->index[k] < g->wavelengths[c->direction[k]];
}

/* Marks one circuit; returns 0 if an index (converted: a segment's last wavelength) is taken already. */
static int mark(const sipring_ring *g, const sipring_circuits *c, int64_t k, unsigned char *used, int32_t *load)
{
    int d = c->direction[k];
    size_t width = (size_t)(g->wavelengths[0] > g->wavelengths[1] ? g->wavelengths[0] : g->wavelengths[1]);
    int32_t src = c->src[c->pair[k]], dst = c->dst[c->pair[k]], from = d == 0 ? src : dst, to = d == 0 ? dst : src;
    int32_t n = segments(g), hops = to - from + (to < from) * g->gpus;
    for (int32_t at = from % n; hops > 0; hops--, at = at + 1 == n ? 0 : at + 1) {
        size_t segment = (size_t)d * (size_t)n + (size_t)at;
        if (!g->continuous && ++load[segment] > g->wavelengths[d]) return 0;
        if (g->continuous && used[segment * width + (size_t)c->index[k]]++) return 0;
    }
    if (!g->continuous && used[((size_t)d * (size_t)n + (size_t)src) * width + (size_t)c->index[k]]++) return 0;
    return 1;
}

int sipring_check(const sipring_ring *g, const sipring_circuits *circuits, int64_t *bad)
{
    if (!ring_ok(g)) return SIPRING_ERING;
    size_t width = (size_t)(g->wavelengths[0] > g->wavelengths[1] ? g->wavelengths[0] : g->wavelengths[1]);
    unsigned char *used = calloc(2 * (size_t)segments(g) * width + 1, 1);
    int32_t *load = calloc(2 * (size_t)segments(g), sizeof(int32_t));
    int status = used && load ? SIPRING_OK : SIPRING_EMEMORY;
    for (int64_t k = 0; k < circuits->circuits && status == SIPRING_OK; k++) {
        *bad = k;
        if (!shape_ok(g, circuits, k)) status = SIPRING_ECIRCUITS;
        else if (!mark(g, circuits, k, used, load)) status = SIPRING_ECONFLICT;
    }
    free(used);
    free(load);
    return status;
}

/* A number that is not negative, infinite or NaN. */
static int finite(double x) { return x >= 0 && x - x == 0; }

static int pair_ok(const sipring_ring *g, const sipring_circuits *c, int64_t p)
{
    int32_t src = c->src[p], dst = c->dst[p];
    if (src < 0 || src >= segments(g) || dst < 0 || dst >= g->gpus || src == dst) return 0;
    return p == 0 || c->src[p - 1] < src || (c->src[p - 1] == src && c->dst[p - 1] < dst);
}

int sipring_check_plan(const sipring_ring *g, const sipring_circuits *circuits, double circuit_gbps, const double *gbps,
                       const double *kept_gbps, const double *dark_us, int64_t *bad)
{
    int status = sipring_check(g, circuits, bad);
    if (status != SIPRING_OK) return status;
    int32_t *held = calloc((size_t)circuits->pairs + 1, sizeof(int32_t));
    if (!held) return SIPRING_EMEMORY;
    for (int64_t k = 0; k < circuits->circuits; k++) held[circuits->pair[k]]++;
    for (int64_t p = 0; p < circuits->pairs && status == SIPRING_OK; p++) {
        *bad = p;
        if (!pair_ok(g, circuits, p)) status = SIPRING_EPAIRS;
        /* A pair without a circuit could be one that nothing can join: its capacity is not looked at here. */
        else if (held[p] == 0 || gbps[p] != held[p] * circuit_gbps || !finite(gbps[p])) status = SIPRING_ECIRCUITS;
        else if (!finite(kept_gbps[p]) || kept_gbps[p] > gbps[p] || !finite(dark_us[p])) status = SIPRING_ECIRCUITS;
    }
    free(held);
    return status;
}

const char *sipring_strerror(int status)
{
    switch (status) {
    case SIPRING_OK: return "no error";
    case SIPRING_EMEMORY: return "out of memory";
    case SIPRING_ERING: return "ring size, period, reach or number of wavelengths out of range";
    case SIPRING_EPAIRS: return "pairs must ascend, lie on the ring and have positive demands";
    case SIPRING_EREACH: return "pair out of reach";
    case SIPRING_ECIRCUITS: return "circuit with an impossible pair, direction or index";
    case SIPRING_ECONFLICT: return "two circuits use one wavelength on the same segment and direction";
    default: return "unknown status";
    }
}

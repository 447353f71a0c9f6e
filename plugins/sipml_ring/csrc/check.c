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
    for (int32_t at = from; at != to; at = at + 1 == g->gpus ? 0 : at + 1) {
        size_t segment = (size_t)d * (size_t)g->gpus + (size_t)(at % segments(g));
        if (!g->continuous && ++load[segment] > g->wavelengths[d]) return 0;
        if (g->continuous && used[segment * width + (size_t)c->index[k]]++) return 0;
    }
    if (!g->continuous && used[((size_t)d * (size_t)g->gpus + (size_t)src) * width + (size_t)c->index[k]]++) return 0;
    return 1;
}

int sipring_check(const sipring_ring *g, const sipring_circuits *circuits, int64_t *bad)
{
    if (!ring_ok(g)) return SIPRING_ERING;
    size_t width = (size_t)(g->wavelengths[0] > g->wavelengths[1] ? g->wavelengths[0] : g->wavelengths[1]);
    unsigned char *used = calloc(2 * (size_t)g->gpus * width + 1, 1);
    int32_t *load = calloc(2 * (size_t)g->gpus, sizeof(int32_t));
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

/* Transfers that are passed on from GPU to GPU: which leg each is on. */
#include "state.h"

#include <string.h>

static int ways_ok(const engine_relays *r)
{
    if (r->way_start[0] != 0 || r->way_start[r->ways] != r->legs)
        return 0;
    for (int64_t way = 0; way < r->ways; way++)
        if (r->way_start[way + 1] <= r->way_start[way]) /* each has a leg */
            return 0;
    return 1;
}

/* Is each leg of each transfer at a place that there is? */
static int places_ok(const engine_graph *g, const engine_relays *r)
{
    for (int64_t t = 0; t < g->transfers; t++) {
        int32_t way = r->way[t];
        if (way < NONE || way >= r->ways || r->place[t] < 0 || r->place[t] >= r->places)
            return 0;
        for (int32_t leg = way == NONE ? 0 : r->way_start[way]; way != NONE && leg < r->way_start[way + 1]; leg++)
            if (r->leg_place[leg] >= r->places - r->place[t])
                return 0;
    }
    return 1;
}

int relays_check(const engine_graph *graph, int64_t pairs)
{
    const engine_relays *r = graph->relays;
    if (r->ways < 0 || r->ways > INT32_MAX || r->legs < 0 || r->legs > INT32_MAX || r->places < 0 ||
        r->places > INT32_MAX - graph->tasks)
        return ENGINE_E_SIZE;
    if (!r->way_start || (graph->transfers && (!r->way || !r->place)) || (r->places && !r->priority) ||
        (r->legs && (!r->leg_pair || !r->leg_place)))
        return ENGINE_E_NULL;
    if (!ways_ok(r))
        return ENGINE_E_INDEX;
    for (int64_t leg = 0; leg < r->legs; leg++)
        if (r->leg_pair[leg] < 0 || r->leg_pair[leg] >= pairs || r->leg_place[leg] < 0)
            return ENGINE_E_INDEX;
    return places_ok(graph, r) ? 0 : ENGINE_E_INDEX;
}

static void take_leg(engine *run, int32_t t, int32_t leg)
{
    const engine_relays *r = run->graph.relays;
    run->relays[t].leg = leg;
    run->leg_pair[t] = r->leg_pair[leg];
    run->leg_priority[run->graph.tasks + t] = r->priority[run->relays[t].place + r->leg_place[leg]];
}

void relays_set_out(engine *run)
{
    const engine_graph *g = &run->graph;
    memcpy(run->leg_priority, g->priority, (size_t)run->nodes * sizeof *run->leg_priority);
    memcpy(run->leg_pair, run->net.transfer_pair, (size_t)g->transfers * sizeof *run->leg_pair);
    run->priority = run->leg_priority;
    run->transfer_pair = run->leg_pair;
    for (int32_t t = 0; t < g->transfers; t++) {
        int32_t way = g->relays->way[t];
        run->relays[t] = (relay){.leg = NONE, .stop = NONE + 1, .place = g->relays->place[t]};
        if (way == NONE)
            continue;
        run->relays[t].stop = g->relays->way_start[way + 1];
        take_leg(run, t, g->relays->way_start[way]);
        run->ends_due += g->relays->way_start[way + 1] - g->relays->way_start[way] - 1;
    }
}

int relays_go_on(engine *run, int32_t t)
{
    int32_t leg = run->relays[t].leg + 1;
    if (leg == run->relays[t].stop)
        return 0;
    take_leg(run, t, leg);
    return 1;
}

int relays_expect(const engine *run, int32_t t)
{
    const engine_relays *r = run->graph.relays;
    int32_t leg = run->relays[t].leg + 1;
    if (leg == run->relays[t].stop)
        return 0;
    __builtin_prefetch(&run->pairs[r->leg_pair[leg]], 1);
    __builtin_prefetch(&r->priority[run->relays[t].place + r->leg_place[leg]]);
    return 1;
}

void engine_places(const engine *run, int32_t *place, int32_t *pair)
{
    const engine_relays *r = run->graph.relays;
    for (int32_t t = 0; t < run->graph.transfers; t++) {
        pair[t] = run->transfer_pair[t];
        place[t] = r ? r->place[t] + (run->relays[t].leg == NONE ? 0 : r->leg_place[run->relays[t].leg]) : t;
    }
}

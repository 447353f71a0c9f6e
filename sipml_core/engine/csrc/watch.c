/* Are the rates max-min fair, and does what is kept up agree with what it stands for? Slow: for tests. */
#include "state.h"

#include <math.h>
#include <stdlib.h>

/* Far above rounding, and below what a wrong step would leave. */
#define TOLERANCE 1e-10

int engine_watch(engine *run)
{
    if (!run)
        return ENGINE_E_NULL;
    if (!run->watch)
        run->watch = calloc(2 * (size_t)run->net.links + 1, sizeof *run->watch);
    return run->watch ? 0 : ENGINE_E_MEMORY;
}

/* What a link carries and the fastest rate on it; is what it keeps of its members right? */
static int look_at_members(engine *run, int32_t link_id, double *load, double *fastest)
{
    const link *l = &run->links[link_id];
    double held_weight = 0, other = 0;
    *fastest = 0;
    for (int32_t m = 0; m < l->count; m++) {
        const member *of = &run->members[l->first + m];
        const crossing *at = &run->crossings[of->crossing];
        int32_t holder = run->holder[of->flow];
        double rate = group_rate(run, of->flow);
        if (holder == NONE || (holder == link_id) != (m < l->held) || at->slot != m || at->link != link_id)
            return 0;
        held_weight += m < l->held ? weight_of(run, of->crossing) : 0;
        other += m < l->held ? 0 : weight_of(run, of->crossing) * rate;
        if (m >= l->held && rate > l->fastest)
            return 0;
        *fastest = rate > *fastest ? rate : *fastest;
    }
    *load = other + held_weight * l->rate;
    double scale = TOLERANCE * (run->capacity[link_id] + 1); /* what it was before may have been more than 0 */
    return !l->open && !l->is_open && !l->listed && l->place == NONE && l->open_weight == 0 &&
           (!l->count || l->capacity == run->capacity[link_id]) && fabs(held_weight - l->held_weight) <= TOLERANCE &&
           (!l->count || fabs(other - l->other) <= scale);
}

static int drains_next(engine *run, const link *l)
{
    double soonest = INFINITY;
    for (int32_t m = 0; m < l->held; m++)
        soonest = run->members[l->first + m].due < soonest ? run->members[l->first + m].due : soonest;
    double key = run->drains.keys[0][l->group];
    if (l->rate == 0 || isinf(soonest))
        return isinf(key);
    double at = l->since + (soonest - l->served) / l->rate;
    return l->soonest == soonest && fabs(key - at) <= TOLERANCE * (1 + at);
}

static int is_fair(engine *run)
{
    double *load = run->watch, *fastest = run->watch + run->net.links;
    for (int32_t id = 0; id < run->net.links; id++)
        if (!look_at_members(run, id, &load[id], &fastest[id]) ||
            load[id] > run->capacity[id] * (1 + TOLERANCE))
            return 0;
    for (int32_t id = 0; id < run->net.links; id++) { /* is each link with a group full, and its group the fastest? */
        const link *l = &run->links[id];
        if (l->held && (load[id] < run->capacity[id] * (1 - TOLERANCE) || fastest[id] > l->rate * (1 + TOLERANCE) ||
                        !drains_next(run, l)))
            return 0;
    }
    return 1;
}

void watch_rates(engine *run)
{
    if (!is_fair(run))
        run->fault = ENGINE_E_RATES;
}

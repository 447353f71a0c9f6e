/* Who is held back by which link. The flows that one link holds back are its group: all have one rate, so one clock
 * says how many bytes each of them was sent, each flow says at which reading of that clock it has ended (`due`), and
 * one key says when the next of them ends. A change of the rate touches no flow. */
#include "state.h"

#include <math.h>

/* `other` is summed afresh after so many changes, before rounding errors add up. */
enum { CHANGES_MAX = 4096 };
/* The clock is set back to 0 when it shows more bytes than this, before it loses digits. */
#define SERVED_MAX 1e7

static link *holder_of(const engine *run, int32_t flow)
{
    return &run->links[run->holder[flow]];
}

static member *member_at(const engine *run, const crossing *at)
{
    return &run->members[run->links[at->link].first + at->slot];
}

double group_rate(const engine *run, int32_t flow)
{
    return run->holder[flow] == NONE ? 0 : holder_of(run, flow)->rate;
}

double group_left(const engine *run, int32_t flow)
{
    const pair *p = &run->pairs[flow];
    if (run->holder[flow] == NONE)
        return p->left;
    const link *l = holder_of(run, flow);
    double left = member_at(run, &run->crossings[p->at])->due - (l->served + l->rate * (run->now - l->since));
    return left > 0 ? left : 0;
}

void group_advance(engine *run, link *l)
{
    l->served += l->rate * (run->now - l->since);
    l->since = run->now;
    if (l->served <= SERVED_MAX)
        return;
    for (int32_t m = 0; m < l->held; m++)
        run->members[l->first + m].due -= l->served;
    l->soonest -= l->served;
    l->served = 0;
}

static double find_soonest(const member *of, int32_t count)
{
    double soonest = INFINITY;
    for (int32_t m = 0; m < count; m++)
        soonest = of[m].due < soonest ? of[m].due : soonest;
    return soonest;
}

void group_schedule(engine *run, int32_t link_id)
{
    link *l = &run->links[link_id];
    if (!l->held)
        return;
    if (l->stale)
        l->soonest = find_soonest(run->members + l->first, l->held);
    l->stale = 0;
    double left = l->soonest - l->served;
    lows_set(&run->drains, l->group, l->rate > 0 ? l->since + (left > 0 ? left : 0) / l->rate : INFINITY);
}

static void exchange(engine *run, const link *l, int32_t a, int32_t b)
{
    if (a == b)
        return;
    member *of = run->members + l->first, m = of[a];
    of[a] = of[b];
    of[b] = m;
    run->crossings[of[a].crossing].slot = a;
    run->crossings[of[b].crossing].slot = b;
}

/* A member of a link whose clock is up to date, not of its group, enters the group. */
void group_enter(engine *run, int32_t link_id, int32_t slot)
{
    link *l = &run->links[link_id];
    if (l->held == 0) {
        l->served = 0;
        l->soonest = INFINITY;
        l->stale = 0;
        l->group =
            run->free_group_count ? run->free_groups[--run->free_group_count] : (int32_t)run->group_count++;
        run->group_link[l->group] = link_id;
    }
    exchange(run, l, slot, l->held);
    member *m = &run->members[l->first + l->held++];
    pair *p = &run->pairs[m->flow];
    run->holder[m->flow] = link_id;
    p->at = m->crossing;
    m->due = l->served + p->left;
    l->held_weight += weight_of(run, m->crossing);
    if (m->due < l->soonest)
        l->soonest = m->due;
}

/* A flow leaves its group, whose clock is up to date. */
void group_leave(engine *run, int32_t flow)
{
    pair *p = &run->pairs[flow];
    link *l = holder_of(run, flow);
    const crossing *at = &run->crossings[p->at];
    double due = member_at(run, at)->due, left = due - l->served;
    p->left = left > 0 ? left : 0;
    run->holder[flow] = NONE;
    if (due <= l->soonest)
        l->stale = 1;
    l->held_weight -= weight_of(run, p->at);
    exchange(run, l, at->slot, --l->held);
    if (l->held == 0) {
        l->held_weight = 0;
        lows_set(&run->drains, l->group, INFINITY);
        run->free_groups[run->free_group_count++] = l->group;
    }
}

/* A flow on all its links begins to send, or ceases to. */
void flow_turns(engine *run, int32_t flow, double before, double after)
{
    if ((before > 0) == (after > 0))
        return;
    if (after > 0)
        record_moved(run, flow);
    const pair *p = &run->pairs[flow];
    for (const crossing *at = run->crossings + p->first; at < run->crossings + p->stop; at++) {
        link *l = &run->links[at->link];
        if (after > 0 && l->flowing++ == 0)
            l->busy_since = run->now;
        if (before > 0 && --l->flowing == 0)
            l->busy += run->now - l->busy_since;
    }
}

static void touch(engine *run, int32_t link_id)
{
    if (!run->links[link_id].touched) {
        run->links[link_id].touched = 1;
        run->touched_links[run->touched_link_count++] = link_id;
    }
}

void group_sum_other(const engine *run, link *l)
{
    l->other = 0;
    l->changes = 0;
    for (int32_t m = l->held; m < l->count; m++) {
        const member *of = &run->members[l->first + m];
        int32_t holder = run->holder[of->flow];
        if (holder != NONE && !run->links[holder].is_open)
            l->other += weight_of(run, of->crossing) * run->links[holder].rate;
    }
}

void group_attach(engine *run, int32_t flow, int32_t transfer)
{
    pair *p = &run->pairs[flow];
    p->transfer = transfer;
    p->left = run->graph.size_bytes[transfer];
    run->holder[flow] = NONE;
    run->fresh[run->fresh_count++] = flow;
    for (int32_t k = p->first; k < p->stop; k++) {
        int32_t link_id = run->crossings[k].link;
        link *l = &run->links[link_id];
        if (l->changes > CHANGES_MAX)
            group_sum_other(run, l);
        if (l->count == 0) {
            l->capacity = run->capacity[link_id];
            run->crossed[link_id / 64] |= UINT64_C(1) << link_id % 64;
        }
        run->crossings[k].slot = l->count;
        run->members[l->first + l->count++] = (member){0, flow, k, p->first, p->stop};
    }
}

void group_detach(engine *run, int32_t flow)
{
    const pair *p = &run->pairs[flow];
    int32_t holder = run->holder[flow];
    double rate = group_rate(run, flow);
    if (holder != NONE) {
        group_advance(run, &run->links[holder]);
        group_leave(run, flow);
        group_schedule(run, holder);
    }
    flow_turns(run, flow, rate, 0);
    for (int32_t k = p->first; k < p->stop; k++) {
        const crossing *at = &run->crossings[k];
        link *l = &run->links[at->link];
        exchange(run, l, at->slot, --l->count);
        if (l->count == l->held)
            l->other = l->fastest = 0;
        else if (at->link != holder)
            l->other -= weight_of(run, k) * rate;
        l->changes++;
        if (l->count == 0)
            run->crossed[at->link / 64] &= ~(UINT64_C(1) << at->link % 64);
        else
            touch(run, at->link);
    }
}

void group_renew(engine *run, int32_t flow, int32_t transfer)
{
    pair *p = &run->pairs[flow];
    p->transfer = transfer;
    p->left = run->graph.size_bytes[transfer];
    link *l = holder_of(run, flow);
    group_advance(run, l);
    double due = l->served + p->left;
    member_at(run, &run->crossings[p->at])->due = due;
    if (due < l->soonest)
        l->soonest = due;
    group_schedule(run, run->holder[flow]);
    if (l->rate > 0)
        record_moved(run, flow);
}

/* The flows of a group whose last byte has left, in an instant that ends at `limit`. Returns how many. */
int32_t group_drained(engine *run, int32_t link_id, double limit, int32_t *flows)
{
    link *l = &run->links[link_id];
    __builtin_prefetch(&run->bytes[link_id], 1);
    group_advance(run, l);
    double sent = l->served + l->rate * (limit - run->now), soonest = INFINITY;
    int32_t count = 0;
    if (sent < l->soonest)
        sent = l->soonest;
    for (int32_t m = 0; m < l->held; m++) {
        member *of = &run->members[l->first + m];
        if (of->due <= sent) {
            of->due = INFINITY;
            __builtin_prefetch(&run->pairs[of->flow], 1);
            flows[count++] = of->flow;
        } else if (of->due < soonest) {
            soonest = of->due;
        }
    }
    l->soonest = soonest;
    l->stale = 0;
    group_schedule(run, link_id);
    return count;
}

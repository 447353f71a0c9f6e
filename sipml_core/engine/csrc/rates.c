/* Max-min fair rates, kept up incrementally.
 *
 * A flow of rate x takes a x of each link it crosses, a being its weight there. Rates x are max-min fair iff each
 * flow has a bottleneck: a full link on which no flow is faster (Bertsekas and Gallager, Data Networks, 6.5.2). The
 * flows that have a link as their bottleneck are its group and share one rate (groups.c).
 *
 * When flows come, go, or capacities change, rates are shared out again in one pass, lowest rate first. Open are the
 * flows whose new rate is not found yet; all others are closed and keep their rates. `shares` holds, of each link to
 * look at, a bound of the rate at which there is something to do on it:
 *   its group is open, or it has none:  (capacity - other) / (held + open), what it would give each of them;
 *   its group is closed:                the group's rate, or what it could give its open flows beside, if that is less.
 * The lowest link is looked at. Its bound is found afresh; if it rose, the link waits. A closed group that gets more or
 * less than its rate is opened, and so are the groups of closed flows that are faster than the link allows; otherwise
 * the link holds back its open flows.
 *
 * Why one pass is enough: whoever is opened had at least the rate r that the pass has reached, and a link with room s
 * for open flows of weight w that gets one more, of weight a, has (s + a r) / (w + a) >= min(s / w, r) for each: no
 * bound falls below r. Who is fixed at r leaves others at least what they had, so bounds in `shares` may be left as
 * they are until they are looked at.
 *
 * Links without a group, most of them never full, are only listed, with one bound for them all.
 */
#include "state.h"

#include <math.h>

/* Rates closer than this, relatively, count as equal: far above rounding, far below what anyone can see. */
#define SAME_RATE 1e-11
/* Spare capacity below this part of a link is what rounding left: none. */
#define NOTHING 1e-12
/* Looks at a link in one pass, on average, after which rounding is to blame: two links that undo each other's work. */
enum { LOOKS_MAX = 64 };
/* Members whose crossings are asked for ahead of their turn. */
enum { AHEAD = 4 };

void rates_resize(engine *run, int32_t link_id, double capacity)
{
    double before = run->capacity[link_id];
    if (before == capacity)
        return;
    run->capacity[link_id] = capacity;
    if ((before > 0) != (capacity > 0))
        account_dark(run, link_id, capacity > 0 ? -1 : 1);
    if (!bit_of(run->crossed, link_id))
        return;
    link *l = &run->links[link_id];
    l->capacity = capacity;
    l->inexact = 1;
    if (!l->touched) {
        l->touched = 1;
        run->touched_links[run->touched_link_count++] = link_id;
    }
}

/* Capacity that the closed flows outside its group leave. */
static inline double room(const link *l)
{
    double left = l->capacity - (l->count == l->held + l->open ? 0 : l->other);
    return l->capacity <= 0 || left <= NOTHING * l->capacity ? 0 : left;
}

/* What a link without a group, or whose group is open, gives each open flow. */
static inline double share(const link *l)
{
    return room(l) / (l->held_weight + l->open_weight);
}

static double bound_of(const link *l)
{
    if (l->is_open || !l->held)
        return l->held + l->open ? share(l) : INFINITY;
    if (!l->open)
        return room(l) - l->held_weight * l->rate > SAME_RATE * l->capacity ? l->rate : INFINITY;
    double left = room(l) - l->held_weight * l->rate;
    double beside = left > NOTHING * l->capacity ? left / l->open_weight : 0;
    return l->rate < beside ? l->rate : beside;
}

static void look_at(engine *run, int32_t link_id, double bound)
{
    link *l = &run->links[link_id];
    if (l->place == NONE) {
        l->place = (int32_t)run->place_count++;
        run->place_link[l->place] = link_id;
    }
    lows_set(&run->shares, l->place, bound);
}

static void look_no_more(engine *run, const link *l)
{
    lows_set(&run->shares, l->place, INFINITY);
}

/* One more flow, of at least this rate if it was open before, is open on a link outside its group. */
static inline void open_on(engine *run, int32_t crossing_id, double rate)
{
    int32_t link_id = run->crossings[crossing_id].link;
    link *l = &run->links[link_id];
    double weight = weight_of(run, crossing_id);
    l->open++;
    l->open_weight += weight;
    l->other -= weight * rate;
    l->changes++;
    if (l->held || l->place != NONE) {
        if (l->place == NONE || rate < run->shares.keys[0][l->place])
            look_at(run, link_id, bound_of(l));
        return;
    }
    double gives = (l->count == l->open ? l->capacity : l->capacity - l->other) / l->open_weight;
    if (gives < run->narrowest)
        run->narrowest = gives;
    if (!l->listed) {
        l->listed = 1;
        run->listed[run->listed_count++] = link_id;
    }
}

/* Ask for the crossings of a member before they are needed. */
static inline void expect(const engine *run, const link *l, int32_t m)
{
    if (m < l->count)
        __builtin_prefetch(&run->crossings[run->members[l->first + m].first]);
}

/* Open a closed group: what its flows had is free on their other links. */
static void open_group(engine *run, int32_t link_id)
{
    link *l = &run->links[link_id];
    group_advance(run, l);
    l->is_open = 1;
    for (int32_t m = 0; m < l->held; m++) {
        const member *of = &run->members[l->first + m];
        expect(run, l, m + AHEAD);
        for (int32_t k = of->first; k < of->stop; k++)
            if (k != of->crossing)
                open_on(run, k, l->rate);
    }
    look_at(run, link_id, bound_of(l));
}

/* Open the groups of closed flows of a link that are faster than the limit. Were there any? */
static int open_faster(engine *run, link *l, double limit)
{
    int any = 0;
    double fastest = 0;
    for (int32_t m = l->held; m < l->count; m++) {
        int32_t holder = run->holder[run->members[l->first + m].flow];
        if (holder == NONE || run->links[holder].is_open)
            continue;
        double rate = run->links[holder].rate;
        if (rate > limit) {
            open_group(run, holder);
            any = 1;
        } else if (rate > fastest) {
            fastest = rate;
        }
    }
    l->fastest = fastest;
    return any;
}

/* A flow is fixed at a rate: what that does on a link that does not hold it back. */
static inline void fix_on(engine *run, int32_t crossing_id, double rate)
{
    link *l = &run->links[run->crossings[crossing_id].link];
    double weight = weight_of(run, crossing_id);
    l->open_weight -= weight;
    l->other += weight * rate;
    if (rate > l->fastest)
        l->fastest = rate;
    if (--l->open == 0) {
        l->open_weight = 0;
        l->is_open &= l->held > 0;
    }
    if (l->place != NONE && run->shares.keys[0][l->place] < INFINITY)
        lows_set(&run->shares, l->place, bound_of(l));
}

/* An open flow that another link held back, or none, becomes one of a link's group. */
static void take_over(engine *run, int32_t link_id, int32_t slot, double rate)
{
    link *l = &run->links[link_id];
    const member of = run->members[l->first + slot];
    int32_t before = run->holder[of.flow];
    flow_turns(run, of.flow, group_rate(run, of.flow), rate);
    if (before != NONE)
        group_leave(run, of.flow);
    group_enter(run, link_id, slot);
    l->open_weight = --l->open ? l->open_weight - weight_of(run, of.crossing) : 0;
    for (int32_t k = of.first; k < of.stop; k++) {
        if (k == of.crossing)
            continue;
        if (run->crossings[k].link != before) {
            fix_on(run, k, rate);
            continue;
        }
        link *left = &run->links[before];
        left->other += weight_of(run, k) * rate;
        if (rate > left->fastest)
            left->fastest = rate;
    }
}

/* A link holds back its open flows, and those of its group, which was closed at this very rate or is open. */
static void fix(engine *run, int32_t link_id, double rate)
{
    link *l = &run->links[link_id];
    int32_t own = l->held;
    look_no_more(run, l);
    group_advance(run, l);
    for (int32_t m = 0; m < own && l->is_open; m++) {
        const member *of = &run->members[l->first + m];
        expect(run, l, m + AHEAD);
        if ((l->rate > 0) != (rate > 0))
            flow_turns(run, of->flow, l->rate, rate);
        for (int32_t k = of->first; k < of->stop; k++)
            if (k != of->crossing)
                fix_on(run, k, rate);
    }
    l->is_open = 0;
    l->rate = rate;
    for (int32_t m = own; m < l->count && l->open; m++) {
        int32_t holder = run->holder[run->members[l->first + m].flow];
        if (holder == NONE || run->links[holder].is_open)
            take_over(run, link_id, m, rate);
    }
    group_schedule(run, link_id);
}

/* The listed links that give less than the rate reached are to be looked at. */
static void list_again(engine *run, double reached)
{
    int64_t kept = 0;
    run->narrowest = INFINITY;
    for (int64_t i = 0; i < run->listed_count; i++) {
        link *l = &run->links[run->listed[i]];
        double gives = l->open ? share(l) : INFINITY;
        if (l->open && gives > reached) {
            run->listed[kept++] = run->listed[i];
            if (gives < run->narrowest)
                run->narrowest = gives;
            continue;
        }
        l->listed = 0;
        if (l->open)
            look_at(run, run->listed[i], gives);
    }
    run->listed_count = kept;
}

/* Look at the link with the lowest bound, where its group is closed. */
static void look_at_closed(engine *run, int32_t link_id, double bound)
{
    link *l = &run->links[link_id];
    double left = room(l) - l->held_weight * l->rate;
    if (!l->open) {
        if (left > SAME_RATE * l->capacity)
            open_group(run, link_id);
        else
            look_no_more(run, l);
        return;
    }
    double beside = left / l->open_weight, same = SAME_RATE * l->rate;
    if (beside > l->rate + same) {
        open_group(run, link_id);
        return;
    }
    double now = bound_of(l);
    if (now > bound)
        look_at(run, link_id, now);
    else if (beside < l->rate - same)
        open_group(run, link_id);
    else
        fix(run, link_id, l->rate);
}

/* The same where its group is open, or it has none. */
static void look_at_open(engine *run, int32_t link_id, double bound)
{
    link *l = &run->links[link_id];
    if (l->held + l->open == 0) { /* its flows went to other links */
        l->is_open = 0;
        look_no_more(run, l);
        return;
    }
    double rate = share(l);
    if (rate > bound)
        look_at(run, link_id, rate);
    else if (l->fastest > rate * (1 + SAME_RATE) && open_faster(run, l, rate * (1 + SAME_RATE)))
        look_at(run, link_id, share(l));
    else
        fix(run, link_id, rate);
}

static void fill(engine *run)
{
    for (int64_t looks = 0;; looks++) {
        double bound = lows_least(&run->shares);
        if (run->narrowest < bound) {
            list_again(run, bound);
            continue;
        }
        if (bound == INFINITY)
            return;
        int32_t link_id = run->place_link[lows_find(&run->shares, bound)];
        link *l = &run->links[link_id];
        if (looks > LOOKS_MAX * run->place_count)
            l->inexact = 1;
        if (l->inexact)
            group_sum_other(run, l);
        if (l->held && !l->is_open)
            look_at_closed(run, link_id, bound);
        else
            look_at_open(run, link_id, bound);
    }
}

/* A flow that meets no other gets what its narrowest link gives, at once. */
static int alone(engine *run, int32_t flow)
{
    const pair *p = &run->pairs[flow];
    int32_t narrowest = p->first;
    double rate = INFINITY;
    for (int32_t k = p->first; k < p->stop; k++) {
        const link *l = &run->links[run->crossings[k].link];
        double gives = l->capacity / weight_of(run, k);
        if (l->count != 1)
            return 0;
        if (gives < rate) {
            rate = gives;
            narrowest = k;
        }
    }
    for (int32_t k = p->first; k < p->stop; k++) {
        link *l = &run->links[run->crossings[k].link];
        l->other = k == narrowest ? 0 : weight_of(run, k) * rate;
        l->fastest = k == narrowest ? 0 : rate;
    }
    int32_t link_id = run->crossings[narrowest].link;
    link *l = &run->links[link_id];
    l->rate = rate;
    l->since = run->now;
    group_enter(run, link_id, 0);
    flow_turns(run, flow, 0, rate);
    group_schedule(run, link_id);
    return 1;
}

/* A link where flows came or went, or whose capacity changed. */
static void look_at_touched(engine *run, int32_t link_id)
{
    link *l = &run->links[link_id];
    int closed = l->held && !l->is_open;
    double load = l->other + (closed ? l->held_weight * l->rate : 0);
    l->touched = 0;
    if (l->inexact && load > l->capacity * (1 + NOTHING))
        open_faster(run, l, 0); /* or closed flows alone might be too many for it */
    if (closed && l->inexact)
        open_group(run, link_id);
    else if (closed && room(l) - l->held_weight * l->rate > SAME_RATE * l->capacity)
        look_at(run, link_id, bound_of(l));
}

void rates_update(engine *run)
{
    run->narrowest = INFINITY;
    for (int64_t i = 0; i < run->fresh_count; i++) {
        const pair *p = &run->pairs[run->fresh[i]];
        if (alone(run, run->fresh[i]))
            continue;
        for (int32_t k = p->first; k < p->stop; k++)
            open_on(run, k, 0);
    }
    for (int64_t i = 0; i < run->touched_link_count; i++)
        look_at_touched(run, run->touched_links[i]);
    if (run->place_count || run->listed_count)
        fill(run);
    for (int64_t i = 0; i < run->touched_link_count; i++) {
        link *l = &run->links[run->touched_links[i]];
        if (l->inexact)
            group_sum_other(run, l);
        l->inexact = 0;
    }
    run->fresh_count = run->touched_link_count = 0;
    while (run->listed_count)
        run->links[run->listed[--run->listed_count]].listed = 0;
    lows_restart(&run->shares);
    while (run->place_count) {
        link *l = &run->links[run->place_link[--run->place_count]];
        l->place = NONE;
        l->inexact = 0;
    }
    if (run->watch)
        watch_rates(run);
}

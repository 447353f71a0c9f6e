/* Compute tasks that are slowed while their GPU sends in a collective: its kernels take a part of the GPU. In a
 * collective every member sends; so a part of the replicas, which simulates what it sends alone, sees what all would.
 *
 * Only runs whose graph has a `slowdown` come here. The ends of running tasks are then kept by GPU and change with
 * the speed of the GPU; in all other runs they are among run->ends and never change. */
#include "state.h"

static int slows(const engine *run, int32_t transfer)
{
    return !run->graph.slows || run->graph.slows[transfer];
}

static void change(engine *run, int32_t g, int32_t by)
{
    contender *c = &run->contenders[g];
    c->moving += by;
    if (!c->touched) {
        c->touched = 1;
        run->touched_contenders[run->touched_contender_count++] = g;
    }
}

/* A transfer becomes the active one of its queue (by = 1), or its last byte has left (by = -1). */
void contention_count(engine *run, int32_t pair_id, int32_t transfer, int32_t by)
{
    if (slows(run, transfer))
        change(run, run->pairs[pair_id].src, by);
}

static void schedule(engine *run, int32_t g)
{
    const contender *c = &run->contenders[g];
    lows_set(&run->task_ends, g, run->now + c->left / c->speed);
}

void contention_begin(engine *run, int32_t g, int32_t task)
{
    contender *c = &run->contenders[g];
    c->left = run->graph.duration_us[task];
    c->since = run->now;
    schedule(run, g);
}

/* GPUs go on at new speeds where collectives came or went in this instant. */
void contention_settle(engine *run)
{
    for (int64_t i = 0; i < run->touched_contender_count; i++) {
        int32_t g = run->touched_contenders[i];
        contender *c = &run->contenders[g];
        double speed = c->moving ? 1 - run->graph.slowdown : 1;
        c->touched = 0;
        if (speed == c->speed)
            continue;
        double left = c->left - (run->now - c->since) * c->speed;
        c->left = left > 0 ? left : 0;
        c->since = run->now;
        c->speed = speed;
        if (run->gpus[g].running != NONE)
            schedule(run, g);
    }
    run->touched_contender_count = 0;
}

/* GPUs whose task ends in an instant that ends at `limit`, after lows_least; their tasks are no longer scheduled. */
int64_t contention_ended(engine *run, double limit)
{
    int64_t count = lows_collect(&run->task_ends, limit, run->due_gpus);
    for (int64_t i = 0; i < count; i++)
        lows_set(&run->task_ends, run->due_gpus[i], INFINITY);
    return count;
}

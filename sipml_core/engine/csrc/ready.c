/* Pairing heaps threaded through the nodes: a node waits in one place at a time, so two indices are enough. */
#include "state.h"

static int comes_first(const engine *run, int32_t a, int32_t b)
{
    const int32_t *priority = run->priority;
    if (priority[a] != priority[b])
        return priority[a] < priority[b];
    if (a >= run->graph.tasks) {
        const double *joined = run->out.start_us;
        if (joined[a] != joined[b])
            return joined[a] < joined[b];
    }
    return a < b;
}

static int32_t meld(engine *run, int32_t a, int32_t b)
{
    int32_t winner = comes_first(run, a, b) ? a : b, loser = winner == a ? b : a;
    run->sibling[loser] = run->child[winner];
    run->child[winner] = loser;
    return winner;
}

void ready_push(engine *run, int32_t *root, int32_t node)
{
    run->child[node] = NONE;
    *root = *root == NONE ? node : meld(run, *root, node);
}

int32_t ready_pop(engine *run, int32_t *root)
{
    int32_t popped = *root, rest = run->child[popped], melded = NONE, result = NONE;
    while (rest != NONE) { /* meld neighbours, two by two */
        int32_t a = rest, b = run->sibling[a];
        rest = b == NONE ? NONE : run->sibling[b];
        int32_t both = b == NONE ? a : meld(run, a, b);
        run->sibling[both] = melded;
        melded = both;
    }
    while (melded != NONE) { /* and those into one, from the last to the first */
        int32_t next = run->sibling[melded];
        result = result == NONE ? melded : meld(run, result, melded);
        melded = next;
    }
    *root = result;
    return popped;
}

/* How many circuits each pair gets: admission, max-min by bisection, leftovers by progressive filling. */
#include "ocs.h"

#include <stdlib.h>
#include <string.h>

/* Bisection stops here and exact steps take over. */
#define NARROW 1e-7

/* Share of a heap that may be found blocked before it is rebuilt: 1 / REBUILD. */
#define REBUILD 16

typedef struct ports {
    int32_t *out; /* circuits that leave each GPU */
    int32_t *in;  /* circuits that enter it */
} ports;

static int ports_new(ports *p, int32_t gpus)
{
    p->out = calloc(2 * (size_t)gpus + 1, sizeof *p->out);
    p->in = p->out ? p->out + gpus : NULL;
    return p->out ? 0 : OCS_ENOMEM;
}

static void ports_clear(ports *p, int32_t gpus)
{
    memset(p->out, 0, 2 * (size_t)gpus * sizeof *p->out);
}

static void ports_free(ports *p)
{
    free(p->out);
}

int ocs_check(const ocs_problem *problem)
{
    const int32_t n = problem->gpus, *src = problem->src, *dst = problem->dst;

    for (int64_t p = 0; p < problem->pairs; p++) {
        if (src[p] < 0 || src[p] >= n || dst[p] < 0 || dst[p] >= n)
            return OCS_EORDER;
        if (p && (src[p - 1] > src[p] || (src[p - 1] == src[p] && dst[p - 1] >= dst[p])))
            return OCS_EORDER;
    }
    return 0;
}

int ocs_admit(const ocs_problem *problem, const int64_t *order, uint8_t *admitted)
{
    const int32_t switches = problem->switches;
    ports used;

    if (ports_new(&used, problem->gpus))
        return OCS_ENOMEM;
    for (int64_t p = 0; p < problem->pairs; p++)
        admitted[p] = 0;
    for (int64_t k = 0; k < problem->pairs; k++) {
        const int64_t p = order[k];
        int32_t *out = &used.out[problem->src[p]], *in = &used.in[problem->dst[p]];

        if (*out == switches || *in == switches)
            continue;
        ++*out;
        ++*in;
        admitted[p] = 1;
    }
    ports_free(&used);
    return 0;
}

/* The least integer not below x, at least 1. x is at most a little more than the number of switches. */
static int32_t at_least_one(double x)
{
    int32_t whole = (int32_t)x;

    whole += whole < x;
    return whole > 1 ? whole : 1;
}

/* Circuits that give every pair a ratio of at least `ratio`. Returns whether the ports allow it. */
static int try_ratio(const ocs_problem *problem, double ratio, int32_t *circuits, ports *used)
{
    const int32_t switches = problem->switches;

    ports_clear(used, problem->gpus);
    for (int64_t p = 0; p < problem->pairs; p++) {
        const int32_t wanted = at_least_one(ratio * problem->demand[p]);
        int32_t *out = &used->out[problem->src[p]], *in = &used->in[problem->dst[p]];

        circuits[p] = wanted;
        *out += wanted;
        *in += wanted;
        if (*out > switches || *in > switches)
            return 0;
    }
    return 1;
}

static double least_ratio(const ocs_problem *problem, const int32_t *circuits)
{
    double least = circuits[0] / problem->demand[0];

    for (int64_t p = 1; p < problem->pairs; p++) {
        const double ratio = circuits[p] / problem->demand[p];

        if (ratio < least)
            least = ratio;
    }
    return least;
}

/* One more circuit for every pair at the least ratio: the only way to raise it. Returns whether the
 * ports allow it; `circuits` is changed only then, `used` is right only then. */
static int raise_least(const ocs_problem *problem, int32_t *circuits, int32_t *trial, ports *used)
{
    const double least = least_ratio(problem, circuits);

    ports_clear(used, problem->gpus);
    for (int64_t p = 0; p < problem->pairs; p++) {
        int32_t *out = &used->out[problem->src[p]], *in = &used->in[problem->dst[p]];

        trial[p] = circuits[p] + (circuits[p] / problem->demand[p] <= least);
        *out += trial[p];
        *in += trial[p];
        if (*out > problem->switches || *in > problem->switches)
            return 0;
    }
    memcpy(circuits, trial, (size_t)problem->pairs * sizeof *circuits);
    return 1;
}

/* Bounds of the best ratio from the load of each port. Below: `c` pairs of total demand `s` need at most
 * ratio * s + c circuits after rounding up. Above: circuits in fractions. */
static int bracket(const ocs_problem *problem, const ports *peers, double *below, double *above)
{
    const size_t gpus = (size_t)problem->gpus;
    double *load = calloc(2 * gpus, sizeof *load);

    if (!load)
        return OCS_ENOMEM;
    for (int64_t p = 0; p < problem->pairs; p++) {
        load[problem->src[p]] += problem->demand[p];
        load[gpus + (size_t)problem->dst[p]] += problem->demand[p];
    }
    *below = *above = problem->switches / problem->demand[0];
    for (size_t k = 0; k < 2 * gpus; k++) {
        if (load[k] <= 0)
            continue;
        const double upper = problem->switches / load[k];
        const double lower = (problem->switches - peers->out[k]) / load[k];

        *above = upper < *above ? upper : *above;
        *below = lower < *below ? lower : *below;
    }
    free(load);
    return 0;
}

int ocs_maxmin(const ocs_problem *problem, int32_t *circuits)
{
    const size_t bytes = (size_t)problem->pairs * sizeof *circuits;
    double below, above, ratio;
    int status;
    ports used;
    int32_t *trial;

    if (problem->pairs == 0)
        return 0;
    status = ports_new(&used, problem->gpus);
    if (status)
        return status;
    trial = malloc(bytes);
    status = OCS_ENOMEM;
    if (!trial)
        goto done;
    status = OCS_ECROWDED;
    if (!try_ratio(problem, 0.0, circuits, &used)) /* one circuit each */
        goto done;
    status = bracket(problem, &used, &below, &above);
    if (status)
        goto done;
    for (ratio = below; ratio < above; ratio = 0.5 * (below + above)) {
        if (try_ratio(problem, ratio, trial, &used)) {
            memcpy(circuits, trial, bytes);
            below = ratio;
        } else {
            above = ratio;
        }
        if (above - below <= NARROW * above)
            break;
    }
    while (raise_least(problem, circuits, trial, &used))
        ;
done:
    free(trial);
    ports_free(&used);
    return status;
}

/* A pair that can still take a circuit, in a heap: least ratio first, then restored ones, then by index. */
typedef struct candidate {
    double ratio;
    int32_t pair;
    int32_t restores; /* 0: has fewer circuits than before; 1: has not */
} candidate;

static int before(const candidate *x, const candidate *y)
{
    if (x->ratio != y->ratio)
        return x->ratio < y->ratio;
    if (x->restores != y->restores)
        return x->restores < y->restores;
    return x->pair < y->pair;
}

static void sift_down(candidate *heap, int64_t size, int64_t k)
{
    const candidate moving = heap[k];

    for (int64_t child = 2 * k + 1; child < size; child = 2 * k + 1) {
        if (child + 1 < size && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &moving))
            break;
        heap[k] = heap[child];
        k = child;
    }
    heap[k] = moving;
}

typedef struct filling {
    const ocs_problem *problem;
    const int32_t *before; /* circuits in the previous plan, or null */
    int32_t *circuits;
    ports used;
} filling;

static int has_room(const filling *f, int64_t pair)
{
    const ocs_problem *problem = f->problem;

    return f->used.out[problem->src[pair]] < problem->switches &&
           f->used.in[problem->dst[pair]] < problem->switches;
}

static candidate candidate_of(const filling *f, int64_t pair)
{
    candidate c;

    c.ratio = f->circuits[pair] / f->problem->demand[pair];
    c.pair = (int32_t)pair;
    c.restores = !(f->before && f->circuits[pair] < f->before[pair]);
    return c;
}

/* Drop candidates without room, and restore the order of the heap. Returns its size. */
static int64_t rebuild(const filling *f, candidate *heap, int64_t size)
{
    int64_t live = 0;

    for (int64_t k = 0; k < size; k++)
        if (has_room(f, heap[k].pair))
            heap[live++] = heap[k];
    for (int64_t k = live / 2 - 1; k >= 0; k--)
        sift_down(heap, live, k);
    return live;
}

static void fill_by_heap(filling *f, candidate *heap)
{
    int64_t size = 0, blocked = 0;

    for (int64_t p = 0; p < f->problem->pairs; p++)
        heap[size++] = candidate_of(f, p);
    size = rebuild(f, heap, size);
    while (size) {
        const int32_t pair = heap[0].pair;

        if (has_room(f, pair)) {
            f->circuits[pair]++;
            f->used.out[f->problem->src[pair]]++;
            f->used.in[f->problem->dst[pair]]++;
            heap[0] = candidate_of(f, pair);
            sift_down(heap, size, 0);
        } else if (++blocked * REBUILD >= size) { /* one linear pass is cheaper than taking them one by one */
            size = rebuild(f, heap, size);
            blocked = 0;
        } else {
            heap[0] = heap[--size];
            sift_down(heap, size, 0);
        }
    }
}

void ocs_count(const ocs_problem *problem, const int32_t *port_map, const int32_t *also, int32_t *counts)
{
    const size_t gpus = (size_t)problem->gpus;

    for (int64_t p = 0; p < problem->pairs; p++) {
        size_t port = (size_t)problem->src[p];
        int32_t count = 0;

        for (int32_t q = 0; q < problem->switches; q++, port += gpus)
            count += port_map[port] == problem->dst[p] && (!also || also[port] == problem->dst[p]);
        counts[p] = count;
    }
}

int ocs_fill(const ocs_problem *problem, const int32_t *previous, int32_t *circuits)
{
    const size_t pairs = (size_t)problem->pairs;
    filling f = {problem, NULL, circuits, {NULL, NULL}};
    candidate *heap = malloc((pairs + 1) * sizeof *heap);
    int32_t *counts = NULL;
    int status = OCS_ENOMEM;

    if (!heap || ports_new(&f.used, problem->gpus))
        goto done;
    if (previous) {
        counts = malloc((pairs + 1) * sizeof *counts);
        if (!counts)
            goto done;
        ocs_count(problem, previous, NULL, counts);
        f.before = counts;
    }
    for (size_t p = 0; p < pairs; p++) {
        f.used.out[problem->src[p]] += circuits[p];
        f.used.in[problem->dst[p]] += circuits[p];
    }
    fill_by_heap(&f, heap);
    status = 0;
done:
    free(counts);
    free(heap);
    ports_free(&f.used);
    return status;
}

const char *ocs_strerror(int status)
{
    switch (status) {
    case 0:
        return "success";
    case OCS_ENOMEM:
        return "out of memory";
    case OCS_ECROWDED:
        return "a GPU has more peers than switches";
    case OCS_EOVERFULL:
        return "the circuits of a GPU exceed the switches";
    case OCS_EORDER:
        return "pairs must be sorted by (src, dst), each once, within the GPUs";
    default:
        return "unknown status";
    }
}

/* A traffic matrix as a schedule of permutations: demands in pieces, pieces in configurations, these on switches. */
#include "ocs.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parts of the largest demand above which a demand is divided into pieces: 1 / part, from coarse to fine. */
static const double CUTS[] = {1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 6.0, 7.0, 8.0, 10.0, 12.0, 16.0};
/* Up to FEW_PAIRS demands all are tried. Above, the search begins at FIRST_CUT and turns after PATIENCE that are worse.
 * MOST_PIECES are matched in all, at most: whatever has been tried by then is compared. */
enum { CUTS_COUNT = sizeof CUTS / sizeof *CUTS, FEW_PAIRS = 10000, FIRST_CUT = 4, PATIENCE = 2, MOST_PIECES = 7000000 };
/* Shorter by less than this part is not shorter. */
static const double SAME = 1e-9;

/* A length, and what it is of. */
typedef struct span {
    double length;
    int32_t of;
} span;

/* The demands of a matrix, from the longest to the shortest, and the most that any port sends or receives. */
typedef struct demands {
    const ocs_problem *problem;
    double delay;
    span *sorted;  /* [pairs] of: pair */
    span *spare;   /* [pairs] */
    double busiest;
} demands;

/* Demands divided into pieces, the longest first. */
typedef struct pieces {
    int64_t count;
    int32_t *pair;
    double *length;
    int32_t degree;
} pieces;

/* Sort spans from the longest to the shortest, equal ones as they were; by the bits of positive doubles, a byte at a time. */
static void sort_spans(span *spans, span *spare, int64_t count)
{
    size_t at[8][256] = {{0}};
    span *from = spans, *to = spare;

    for (int64_t k = 0; k < count; k++) {
        uint64_t bits;
        memcpy(&bits, &spans[k].length, sizeof bits);
        for (int byte = 0; byte < 8; byte++) at[byte][255 - (bits >> (8 * byte) & 255)]++;
    }
    for (int byte = 0; byte < 8; byte++) {
        size_t before = 0;
        int alike = 0;
        for (int value = 0; value < 256; value++) {
            const size_t here = at[byte][value];
            alike |= here == (size_t)count;
            at[byte][value] = before;
            before += here;
        }
        if (alike)
            continue;
        for (int64_t k = 0; k < count; k++) {
            uint64_t bits;
            memcpy(&bits, &from[k].length, sizeof bits);
            to[at[byte][255 - (bits >> (8 * byte) & 255)]++] = from[k];
        }
        span *const sorted = to;
        to = from;
        from = sorted;
    }
    if (from != spans)
        memcpy(spans, from, (size_t)count * sizeof *spans);
}

static int demands_new(demands *d, const ocs_problem *problem, double delay)
{
    const size_t pairs = (size_t)problem->pairs, gpus = (size_t)problem->gpus;
    double *load = calloc(2 * gpus + 1, sizeof *load);

    memset(d, 0, sizeof *d);
    d->problem = problem;
    d->delay = delay;
    d->sorted = malloc((pairs + 1) * sizeof *d->sorted);
    d->spare = malloc((pairs + 1) * sizeof *d->spare);
    if (!load || !d->sorted || !d->spare) {
        free(load);
        return OCS_ENOMEM;
    }
    for (size_t k = 0; k < pairs; k++) {
        d->sorted[k] = (span){problem->demand[k], (int32_t)k};
        load[problem->src[k]] += problem->demand[k];
        load[gpus + (size_t)problem->dst[k]] += problem->demand[k];
    }
    sort_spans(d->sorted, d->spare, problem->pairs);
    for (size_t port = 0; port < 2 * gpus; port++)
        if (load[port] > d->busiest)
            d->busiest = load[port];
    free(load);
    return 0;
}

static void demands_free(demands *d)
{
    free(d->sorted);
    free(d->spare);
}

static void pieces_free(pieces *p)
{
    free(p->pair);
    free(p->length);
    memset(p, 0, sizeof *p);
}

/* Pieces that a demand is divided into; all but the last are as long as the limit. */
static int64_t divided(double length, double limit)
{
    const double count = ceil(length / limit - 1e-9);
    return count > 1 ? (int64_t)count : 1;
}

/* The pieces of a limit, counted: how many there are, how many demands are divided, and the largest degree. `degree` has
 * room for two counts for each GPU. */
static int64_t count_pieces(const demands *d, double limit, int64_t *of_divided, int64_t *degree, int32_t *largest)
{
    const ocs_problem *problem = d->problem;
    int64_t total = 0, most = 0;

    memset(degree, 0, 2 * (size_t)problem->gpus * sizeof *degree);
    *of_divided = 0;
    for (int64_t k = 0; k < problem->pairs; k++) {
        const int32_t pair = d->sorted[k].of;
        const int64_t count = divided(d->sorted[k].length, limit);
        *of_divided += count > 1;
        total += count;
        degree[problem->src[pair]] += count;
        degree[problem->gpus + problem->dst[pair]] += count;
    }
    for (int32_t port = 0; port < 2 * problem->gpus; port++)
        if (degree[port] > most)
            most = degree[port];
    *largest = most < INT32_MAX ? (int32_t)most : INT32_MAX;
    return total;
}

/* Make the pieces of a limit: the whole ones of all demands, merged with the last ones, which are sorted. Of equal length the
 * one of the longer demand is first, the whole ones of a demand before its last. */
static int make_pieces(demands *d, double limit, int64_t of_divided, pieces *p)
{
    const int64_t pairs = d->problem->pairs;
    span *last = malloc((size_t)(of_divided + 1) * sizeof *last);

    p->pair = malloc((size_t)(p->count + 1) * sizeof *p->pair);
    p->length = malloc((size_t)(p->count + 1) * sizeof *p->length);
    if (!last || !p->pair || !p->length) {
        free(last);
        return OCS_ENOMEM;
    }
    /* Here `of` is the place in `sorted`, to which equal lengths go back. */
    for (int64_t k = 0; k < of_divided; k++) {
        const double length = d->sorted[k].length;
        last[k] = (span){length - (double)(divided(length, limit) - 1) * limit, (int32_t)k};
    }
    sort_spans(last, d->spare, of_divided);

    int64_t made = 0, tail = of_divided, next = 0;
    /* Whole ones: of demand `whole`, `left` of them. */
    int64_t whole = 0, left = of_divided ? divided(d->sorted[0].length, limit) - 1 : 0;
    while (made < p->count) {
        double length = -1.0;
        int64_t place = 0;
        int source = 0;
        if (left) {
            length = limit;
            place = whole;
            source = 1;
        }
        if (next < of_divided && (last[next].length > length || (last[next].length == length && last[next].of < place))) {
            length = last[next].length;
            place = last[next].of;
            source = 2;
        }
        if (tail < pairs && d->sorted[tail].length > length) {
            length = d->sorted[tail].length;
            place = tail;
            source = 3;
        }
        p->pair[made] = d->sorted[place].of;
        p->length[made++] = length;
        if (source == 2) {
            next++;
        } else if (source == 3) {
            tail++;
        } else if (!--left && ++whole < of_divided) {
            left = divided(d->sorted[whole].length, limit) - 1;
        }
    }
    free(last);
    return 0;
}

/* Give pieces their configurations [pieces], and these their durations, the longest first. */
static int match_pieces(const ocs_problem *problem, const pieces *p, int32_t *configuration, double *duration)
{
    const size_t count = (size_t)p->count, degree = (size_t)p->degree;
    int32_t *src = malloc((count + 1) * sizeof *src), *dst = malloc((count + 1) * sizeof *dst);
    int32_t *place = malloc((degree + 1) * sizeof *place);
    span *order = calloc(degree + 1, sizeof *order), *spare = malloc((degree + 1) * sizeof *spare);
    int status = OCS_ENOMEM;

    if (!src || !dst || !place || !order || !spare)
        goto done;
    for (size_t k = 0; k < count; k++) {
        src[k] = problem->src[p->pair[k]];
        dst[k] = problem->dst[p->pair[k]];
    }
    status = ocs_match(problem->gpus, p->count, src, dst, p->degree, configuration);
    if (status)
        goto done;
    for (size_t c = 0; c < degree; c++) order[c].of = (int32_t)c;
    for (size_t k = 0; k < count; k++) {
        span *const held = &order[configuration[k]];
        if (p->length[k] > held->length)
            held->length = p->length[k];
    }
    sort_spans(order, spare, (int64_t)degree);
    for (size_t c = 0; c < degree; c++) {
        duration[c] = order[c].length;
        place[order[c].of] = (int32_t)c;
    }
    for (size_t k = 0; k < count; k++) configuration[k] = place[configuration[k]];
done:
    free(src);
    free(dst);
    free(place);
    free(order);
    free(spare);
    return status;
}

/* A schedule of pieces that were made: `made` takes it over, empty before. */
static int schedule(const demands *d, const pieces *p, ocs_schedule *made)
{
    const ocs_problem *problem = d->problem;
    const size_t degree = (size_t)p->degree, gpus = (size_t)problem->gpus;
    int32_t *configuration = malloc(((size_t)p->count + 1) * sizeof *configuration);
    int status = OCS_ENOMEM;

    made->configurations = p->degree;
    made->duration = malloc((degree + 1) * sizeof *made->duration);
    made->port_map = malloc((degree * gpus + 1) * sizeof *made->port_map);
    made->slice = malloc((degree + (size_t)problem->switches + 1) * sizeof *made->slice);
    if (!configuration || !made->duration || !made->port_map || !made->slice)
        goto done;
    status = match_pieces(problem, p, configuration, made->duration);
    if (status)
        goto done;
    memset(made->port_map, 0xff, degree * gpus * sizeof *made->port_map);  /* OCS_DARK */
    for (int64_t k = 0; k < p->count; k++) {
        const int32_t pair = p->pair[k];
        made->port_map[(size_t)configuration[k] * gpus + (size_t)problem->src[pair]] = problem->dst[pair];
    }
    status = ocs_spread(p->degree, made->duration, problem->switches, d->delay, made->slice, &made->slices);
done:
    free(configuration);
    return status;
}

/* What has been tried: the best schedule, its cut and its end, and the pieces that may still be matched. */
typedef struct trials {
    ocs_schedule best;
    int cut;
    double end;
    int64_t budget;
    int64_t *degree;  /* [2 gpus] */
} trials;

/* Try a cut that was not tried before; *better: its schedule is the best so far. One that cannot be, by the load of the
 * busiest port and the delays of its configurations, is not matched. */
static int try_cut(demands *d, trials *t, int cut, int *better)
{
    const double limit = d->sorted[0].length / CUTS[cut];
    ocs_schedule made = {0};
    pieces p = {0};
    int64_t of_divided;
    int status = 0;

    *better = 0;
    if (t->budget <= 0 && t->cut >= 0)
        return 0;
    p.count = count_pieces(d, limit, &of_divided, t->degree, &p.degree);
    const double least = (d->busiest + (double)p.degree * d->delay) / (double)d->problem->switches;
    if (t->cut >= 0 && least > t->end * (1 + SAME)) {
        t->budget -= p.count;
        return 0;
    }
    if (p.count > INT32_MAX)
        return OCS_EOVERFULL;
    status = make_pieces(d, limit, of_divided, &p);
    if (!status)
        status = schedule(d, &p, &made);
    t->budget -= p.count;
    pieces_free(&p);
    if (status) {
        ocs_schedule_free(&made);
        return status;
    }
    const double end = ocs_end(made.slice, made.slices);
    *better = t->cut < 0 || end < t->end * (1 - SAME);
    if (*better || (cut < t->cut && end <= t->end * (1 + SAME))) {
        ocs_schedule_free(&t->best);
        t->best = made;
        t->cut = cut;
        t->end = end;
    } else {
        ocs_schedule_free(&made);
    }
    return 0;
}

int ocs_decompose(const ocs_problem *problem, double delay, ocs_schedule *made)
{
    const int patience = problem->pairs > FEW_PAIRS ? PATIENCE : CUTS_COUNT;
    demands d;
    trials t = {.cut = -1, .budget = MOST_PIECES};
    int better, status = demands_new(&d, problem, delay);

    memset(made, 0, sizeof *made);
    t.degree = malloc((2 * (size_t)problem->gpus + 1) * sizeof *t.degree);
    if (!status && !t.degree)
        status = OCS_ENOMEM;
    if (status || !problem->pairs)
        goto done;
    status = try_cut(&d, &t, FIRST_CUT, &better);
    for (int step = 1; !status && step >= -1; step -= 2) {
        int worse = 0;
        for (int cut = t.cut + step; !status && cut >= 0 && cut < CUTS_COUNT && worse < patience; cut += step) {
            better = 0;
            if (step > 0 || cut < FIRST_CUT)  /* else it was tried on the way up */
                status = try_cut(&d, &t, cut, &better);
            worse = better ? 0 : worse + 1;
        }
    }
    if (!status)
        *made = t.best;
    else
        ocs_schedule_free(&t.best);
done:
    demands_free(&d);
    free(t.degree);
    return status;
}

void ocs_schedule_free(ocs_schedule *made)
{
    free(made->port_map);
    free(made->duration);
    free(made->slice);
    memset(made, 0, sizeof *made);
}

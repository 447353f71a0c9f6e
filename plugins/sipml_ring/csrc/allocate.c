/* How many circuits each pair gets in each direction, by segment loads alone.
 *
 * Bisection on t = min circuits/demand: every pair needs ceil(t demand). A pair with one direction in reach leaves no
 * choice. Otherwise moving units from direction a to b must cover every segment s of direction a at least
 * max(load_a(s) - W_a, moved + load_b(s) - W_b) times: a circular multi-cover, solved by the furthest-reaching
 * greedy from several starting segments, with `moved` raised to its least fixed point. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "net.h"

/* The served rows whose shorter direction is d, in as little memory as the bisection can do with. */
typedef struct {
    int32_t many;
    double *demand; /* [many] */
    int32_t *need;  /* [many] of the last test */
    int32_t *near, *far; /* [many] the end at the source, the same for many rows on end, and the other; from n on: it
                          * passes node 0 */
} arcs_t;

typedef struct {
    int32_t *load[DIRECTIONS]; /* [n + 1] */
    int32_t *need;             /* [rows] */
    int32_t *moved;            /* [rows] units that leave their direction */
    int32_t *movable, *from;   /* [rows], [n + 1] rows with units that may leave, by (start, -hops), and each start's */
    int32_t *next, *span;      /* [n] first of those with units left to move, and its hops; 0: none */
    int32_t *change;           /* [n + 1] of what chosen arcs cover, from one segment to the next */
    int32_t *turn;             /* [2 n + 1] the same for two turns round the ring, of which the second is the first */
    arcs_t arcs[DIRECTIONS];
} work_t;

/* The least integer not below t demand, but at least 1; of a product that is an integer but for rounding, that one. */
static inline int32_t need_of(double t, double demand)
{
    double x = t * demand * (1 - 1e-11);
    x = x < INT32_MAX / 4 ? x : INT32_MAX / 4;
    int32_t floor_x = (int32_t)x, ceil_x = floor_x + (x > floor_x);
    return ceil_x > 1 ? ceil_x : 1;
}

/* A first distribution: all on one direction where allowed (only >= 0), or on the shorter (only < 0). */
static void spread(net_t *net, int only)
{
    for (int32_t k = 0; k < net->rows; k++) {
        row_t *r = &net->row[k];
        int d = only >= 0 && r->hops[only] > 0 ? only : r->first;
        r->count[CW] = r->count[CCW] = 0;
        if (!r->served) continue;
        r->count[d] = r->need;
        if (only < 0 && r->hops[CW] == r->hops[CCW]) { /* opposite GPUs: half each way */
            r->count[CW] = (r->need + (r->src & 1)) / 2;
            r->count[CCW] = r->need - r->count[CW];
        }
    }
}

static void loads(const net_t *net, work_t *w)
{
    for (int d = 0; d < DIRECTIONS; d++) {
        int32_t n = net->n, *load = w->load[d], running = 0;
        memset(load, 0, sizeof(int32_t) * ((size_t)n + 1));
        for (int32_t k = 0; k < net->rows; k++) {
            const row_t *r = &net->row[k];
            int32_t end = r->start[d] + r->hops[d], x = r->count[d];
            load[r->start[d]] += x;
            load[end <= n ? end : end - n] -= x;
            if (end > n) running += x;
        }
        for (int32_t s = 0; s < n; s++) load[s] = running += load[s];
    }
}

static int over(const net_t *net, const work_t *w, int d)
{
    for (int32_t s = 0; s < net->n; s++)
        if (w->load[d][s] > net->ring->wavelengths[d]) return 1;
    return 0;
}

/* Rows of direction a whose units may take the other one. */
static void find_movable(const net_t *net, work_t *w, int a)
{
    int32_t many = 0;
    for (int32_t u = 0; u < net->n; u++) {
        w->from[u] = many;
        for (int32_t k = net->from[a][u]; k < net->from[a][u + 1]; k++) {
            const row_t *r = &net->row[net->by_start[a][k]];
            if (r->hops[!a] > 0 && r->count[a] > 0) w->movable[many++] = net->by_start[a][k];
        }
    }
    w->from[net->n] = many;
}

static void offer(const net_t *net, work_t *w, int a, int32_t start, int32_t next)
{
    w->next[start] = next;
    w->span[start] = next < w->from[start + 1] ? net->row[w->movable[next]].hops[a] : 0;
}

/* The start whose next movable row covers segment s and reaches furthest, the nearest of equals; -1: none. */
static int32_t furthest(const net_t *net, const work_t *w, int32_t s, int32_t *left)
{
    int32_t best = -1, u = s;
    *left = 0;
    for (int32_t back = 0; back < net->reach; back++) {
        if (w->span[u] - back > *left) {
            best = u;
            *left = w->span[u] - back;
        }
        u = u == 0 ? net->n - 1 : u - 1;
    }
    return best;
}

/* Least number of units of direction a, by greedy from segment `first`, that covers what `moved` units require;
 * w->moved says which. -1: cannot be covered. */
static int32_t cover(const net_t *net, work_t *w, int a, int32_t first, int32_t moved)
{
    int32_t n = net->n, sum = 0, covered = 0, wa = net->ring->wavelengths[a], wb = net->ring->wavelengths[!a];
    memset(w->change, 0, sizeof(int32_t) * ((size_t)n + 1));
    memset(w->moved, 0, sizeof(int32_t) * (size_t)net->rows);
    for (int32_t u = 0; u < n; u++) offer(net, w, a, u, w->from[u]);
    for (int32_t k = 0, s = first; k < n; k++, s = s + 1 == n ? 0 : s + 1) {
        int32_t must = w->load[a][s] - wa;
        if (moved + w->load[!a][s] - wb > must) must = moved + w->load[!a][s] - wb;
        covered += w->change[k];
        while (covered < must) {
            int32_t left, start = furthest(net, w, s, &left);
            if (start < 0) return -1;
            int32_t row = w->movable[w->next[start]], back = s >= start ? s - start : s - start + n;
            int32_t x = must - covered, most = net->row[row].count[a] - w->moved[row];
            if (x > most) x = most;
            w->moved[row] += x;
            sum += x;
            covered += x;
            if (k + left < n) w->change[k + left] -= x;
            if (back > k) w->change[n + k - back] += x; /* it begins before `first`: the last segments are its too */
            if (x == most) offer(net, w, a, start, w->next[start] + 1);
        }
    }
    return sum;
}

/* The most units that can move from direction a. A segment of the other direction takes them all but those that covered
 * it, at most what it has left; over all segments, a unit of h segments takes n - h. The longest take least. */
static int64_t most_moved(const net_t *net, work_t *w, int a)
{
    int32_t n = net->n, *units = w->change; /* [n] by number of segments */
    int64_t left = (int64_t)n * net->ring->wavelengths[!a], most = 0;
    for (int32_t s = 0; s < n; s++) left -= w->load[!a][s];
    memset(units, 0, sizeof(int32_t) * (size_t)n);
    for (int32_t k = 0; k < w->from[n]; k++) {
        const row_t *r = &net->row[w->movable[k]];
        units[r->hops[a]] += r->count[a];
    }
    for (int32_t h = n - 1; h > 0 && left > 0; h--) {
        int64_t x = left / (n - h) < units[h] ? left / (n - h) : units[h];
        most += x;
        left -= x * (n - h);
    }
    return most;
}

/* Moves units from direction a to the other until no segment is overloaded; 0 if no way was found. */
static int reroute(net_t *net, work_t *w, int a)
{
    int32_t n = net->n, tries = n <= 16 ? n : 4;
    find_movable(net, w, a);
    int64_t limit = most_moved(net, w, a);
    for (int32_t k = 0; k < tries; k++) {
        int32_t first = (int32_t)((int64_t)k * n / tries), moved = 0, sum;
        while ((sum = cover(net, w, a, first, moved)) > moved && sum <= limit) moved = sum;
        if (sum < 0 || sum > moved) continue;
        for (int32_t row = 0; row < net->rows; row++) {
            net->row[row].count[a] -= w->moved[row];
            net->row[row].count[!a] += w->moved[row];
        }
        return 1;
    }
    return 0;
}

/* Whether all needs fit on the shorter directions. */
static int fits(net_t *net, work_t *w, double t)
{
    int32_t n = net->n, *turn = w->turn;
    for (int d = 0; d < DIRECTIONS; d++) {
        const arcs_t *arcs = &w->arcs[d];
        int32_t sign = d == CW ? 1 : -1; /* from `near` to `far`, or the other way */
        for (int32_t k = 0; k < arcs->many; k++) arcs->need[k] = need_of(t, arcs->demand[k]);
        memset(turn, 0, sizeof(int32_t) * (2 * (size_t)n + 1));
        for (int32_t k = 0; k < arcs->many;) {
            int32_t near = arcs->near[k], sum = 0;
            for (; k < arcs->many && arcs->near[k] == near; k++) {
                sum += arcs->need[k];
                turn[arcs->far[k]] -= sign * arcs->need[k];
            }
            turn[near] += sign * sum;
        }
        int32_t first = 0, second = 0, most = 0;
        for (int32_t s = 0; s < n; s++) second += turn[s];
        for (int32_t s = 0; s < n; s++) {
            first += turn[s];
            second += turn[n + s];
            if (first + second > most) most = first + second;
        }
        if (most > net->ring->wavelengths[d]) return 0;
    }
    return 1;
}

/* Least circuits / demand that needs rounded up for t give, of the last test that held. */
static double reached(const net_t *net, const work_t *w)
{
    double least = INFINITY;
    if (net->flexible > 0) return net_minimum(net);
    for (int d = 0; d < DIRECTIONS; d++)
        for (int32_t k = 0; k < w->arcs[d].many; k++) {
            double demand = w->arcs[d].demand[k];
            int32_t need = w->arcs[d].need[k];
            if (surely_above(need, demand, least)) continue;
            if (need / demand < least) least = need / demand;
        }
    return least;
}

static int feasible(net_t *net, work_t *w, double t)
{
    for (int32_t k = 0; k < net->rows; k++) {
        row_t *r = &net->row[k];
        w->need[k] = r->need = r->served ? need_of(t, r->demand) : 0;
    }
    spread(net, -1);
    loads(net, w);
    int clockwise = over(net, w, CW), counter = over(net, w, CCW);
    if (!clockwise && !counter) return 1;
    if (net->flexible == 0 || !net_may_fit(net, w->need)) return 0;
    if (clockwise != counter && reroute(net, w, clockwise ? CW : CCW)) return 1;
    for (int a = 0; a < DIRECTIONS; a++) {
        spread(net, a);
        loads(net, w);
        if (reroute(net, w, a)) return 1;
    }
    return 0;
}

/* No t above this one fits: W over the load of the demands themselves, three times that if they can move. */
static double upper(const net_t *net)
{
    double most = 0;
    for (int d = 0; d < DIRECTIONS; d++) {
        if (net->ring->wavelengths[d] == 0) continue;
        double *load = calloc((size_t)net->n + 1, sizeof(double)), running = 0;
        if (!load) return -1;
        for (int32_t k = 0; k < net->rows; k++) {
            const row_t *r = &net->row[k];
            int32_t end = r->start[d] + r->hops[d];
            if (!r->served || r->first != d) continue;
            load[r->start[d]] += r->demand;
            load[end <= net->n ? end : end - net->n] -= r->demand;
            if (end > net->n) running += r->demand;
        }
        for (int32_t s = 0; s < net->n; s++) {
            running += load[s];
            if (running > most * net->ring->wavelengths[d]) most = running / net->ring->wavelengths[d];
        }
        free(load);
    }
    return most > 0 ? (net->flexible ? 3.0001 : 1.0001) / most : 0;
}

/* `low` is always the minimum of a distribution that was found. Near the end the next larger one is tried at once. */
static void bisect(net_t *net, work_t *w, double high, double *throughput)
{
    int (*test)(net_t *, work_t *, double) = net->flexible > 0 ? feasible : fits;
    double low = test(net, w, 0) ? reached(net, w) : 0;
    if (low == 0) high = 0;
    for (int turn = 0; high > low * (1 + 1e-9); turn++) {
        double t = turn % 2 && high < 1.02 * low ? low * (1 + 1e-9) : 0.5 * (low + high);
        if (!test(net, w, t)) {
            high = t;
            continue;
        }
        low = reached(net, w);
        if (low < t) low = t;
    }
    if (low > 0 && !feasible(net, w, low)) low = 0;
    *throughput = low;
}

static void gather(const net_t *net, int d, arcs_t *arcs)
{
    for (int32_t k = 0; k < net->rows; k++) {
        const row_t *r = &net->row[k];
        int32_t start = r->start[d], end = start + r->hops[d];
        if (!r->served || r->first != d) continue;
        arcs->demand[arcs->many] = r->demand;
        arcs->near[arcs->many] = d == CW ? start : end;
        arcs->far[arcs->many++] = d == CW ? end : start;
    }
}

int net_allocate(net_t *net, double *throughput)
{
    work_t w;
    size_t n = (size_t)net->n + 1, rows = (size_t)net->rows + 1;
    double high = upper(net);
    int status = SIPRING_EMEMORY;
    *throughput = 0;
    w.load[CW] = malloc(sizeof(int32_t) * (8 * n + (3 + 3 * DIRECTIONS) * rows));
    double *demand = malloc(sizeof(double) * DIRECTIONS * rows);
    if (!w.load[CW] || !demand || high < 0) goto done;
    w.load[CCW] = w.load[CW] + n;
    w.from = w.load[CCW] + n;
    w.next = w.from + n;
    w.span = w.next + n;
    w.change = w.span + n;
    w.turn = w.change + n;
    w.moved = w.turn + 2 * n;
    w.movable = w.moved + rows;
    w.need = w.movable + rows;
    for (int d = 0; d < DIRECTIONS; d++) {
        int32_t *own = w.need + (size_t)(1 + 3 * d) * rows;
        w.arcs[d] = (arcs_t){.demand = demand + (size_t)d * rows, .need = own, .near = own + rows, .far = own + 2 * rows};
        gather(net, d, &w.arcs[d]);
    }
    if (high > 0) bisect(net, &w, high, throughput);
    status = SIPRING_OK;
done:
    free(w.load[CW]);
    free(demand);
    return status;
}

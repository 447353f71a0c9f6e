/* Random calls on random banks, the same on every machine: fuzz_bank SEED BANKS. Nothing may overflow, read or write
 * out of bounds or become undefined (the sanitizers watch), and after every call the laws at `holds` must hold.
 * Exits 0, or 1 with the broken laws. */
#include "hwsim.h"

#include "draw.h"
#include "expect.h"

#include <math.h>
#include <string.h>

enum { FIELDS = HWSIM_REACHABLE + 1, DOUBLES = 9 };

static uint64_t seed;

/* A bank and what it was made of; every array is exactly as long as the contract asks for. */
typedef struct subject {
    hwsim_config config;
    hwsim_rings rings;
    double *of_ring[DOUBLES]; /* the arrays that `rings` points at, [rings] each, in the order of the header */
    double *crosstalk;        /* [crosstalk_reach] */
    uint8_t *law;             /* [rings] */
    hwsim_bank *bank;
} subject;

static double between(double low, double high)
{
    return low + (high - low) * below(&seed, 1000001) / 1e6;
}

/* One call in eight or so gets a value that no physics has. */
static double odd_or(double good)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, -1.0, 0.0, 1e-300, 1e300};
    return below(&seed, 8) ? good : odd[below(&seed, (int)(sizeof odd / sizeof odd[0]))];
}

static void draw_parameters(subject *s)
{
    static const double low[DOUBLES] = {0.5, 20.0, 1.0, 500.0, 5.0, 0.1, 0.0, -2000.0, 0.5};
    static const double high[DOUBLES] = {20.0, 300.0, 40.0, 8000.0, 100.0, 1.0, 20.0, 2000.0, 2.0};
    const int64_t per_port = 1 + below(&seed, 9), n = per_port * (1 + below(&seed, 4));
    hwsim_config *c = &s->config;
    c->rings = n;
    c->rings_per_port = per_port;
    c->step_us = between(0.05, 2.0);
    c->lock_ghz = between(0.5, 5.0);
    c->unlock_ghz = c->lock_ghz * between(1.1, 3.0);
    c->overdrive_gain = between(1.1, 8.0);
    c->loop_ticks = 1 + below(&seed, 5);
    c->loop_ratio = between(0.1, 0.9);
    c->dither_ghz = between(0.1, 2.0);
    c->capture = between(0.001, 0.5);
    c->crosstalk_reach = below(&seed, (int)per_port);
    c->compensate = below(&seed, 2);
    s->crosstalk = array(c->crosstalk_reach, sizeof(double));
    for (int64_t d = 0; d < c->crosstalk_reach; d++) {
        s->crosstalk[d] = between(0.0, 0.4 / (double)c->crosstalk_reach);
    }
    c->crosstalk = s->crosstalk;
    for (int k = 0; k < DOUBLES; k++) {
        s->of_ring[k] = array(n, sizeof(double));
        for (int64_t i = 0; i < n; i++) {
            s->of_ring[k][i] = between(low[k], high[k]);
        }
    }
    s->law = array(n, 1);
    for (int64_t i = 0; i < n; i++) {
        s->law[i] = (uint8_t)below(&seed, HWSIM_PI_LOCK + 1);
    }
    s->rings = (hwsim_rings){s->of_ring[0], s->of_ring[1], s->of_ring[2], s->of_ring[3], s->of_ring[4],
                             s->of_ring[5], s->of_ring[6], s->of_ring[7], s->of_ring[8], s->law};
}

/* Spoil one parameter of the bank, perhaps; a refused bank must leave *bank alone. */
static void spoil(subject *s)
{
    const int64_t ring = below(&seed, (int)s->config.rings);
    double *const of_config[] = {&s->config.step_us,    &s->config.lock_ghz,   &s->config.unlock_ghz,
                                 &s->config.overdrive_gain, &s->config.loop_ratio, &s->config.dither_ghz,
                                 &s->config.capture};
    switch (below(&seed, 6)) {
    case 0:
        s->of_ring[below(&seed, DOUBLES)][ring] = odd_or(1.0);
        break;
    case 1:
        *of_config[below(&seed, 7)] = odd_or(1.0);
        break;
    case 2:
        s->law[ring] = (uint8_t)below(&seed, 256);
        break;
    case 3:
        s->config.rings_per_port = below(&seed, 12) - 1;
        break;
    default:
        break;
    }
}

static int make(subject *s)
{
    memset(s, 0, sizeof *s);
    draw_parameters(s);
    if (below(&seed, 4) == 0) {
        spoil(s);
    }
    const int status = hwsim_bank_new(&s->config, &s->rings, &s->bank);
    EXPECT((status == HWSIM_OK) == (s->bank != NULL));
    return status == HWSIM_OK;
}

static void release(subject *s)
{
    hwsim_bank_free(s->bank);
    free(s->crosstalk);
    free(s->law);
    for (int k = 0; k < DOUBLES; k++) {
        free(s->of_ring[k]);
    }
}

/* Read every field, into out[field * rings + ring]; 0 where a ring has no line yet and the field is refused. */
static double *read_all(const subject *s)
{
    const int64_t n = s->config.rings;
    double *out = array(FIELDS * n, sizeof(double));
    for (int field = 0; field < FIELDS; field++) {
        const int status = hwsim_bank_read(s->bank, field, out + field * n, n);
        EXPECT(status == HWSIM_OK || status == HWSIM_E_UNTUNED);
    }
    return out;
}

/* Laws of every bank at any time: powers within the heater's limits, heat never negative, a passive ring, flags,
 * the nearest order, and energy that only grows (from `before`, if given). */
static void holds(const subject *s, const double *now, const double *before)
{
    const int64_t n = s->config.rings;
    for (int64_t i = 0; i < n; i++) {
        const double power = now[HWSIM_POWER_MW * n + i], shift = now[HWSIM_SHIFT_GHZ * n + i];
        const double drop = now[HWSIM_DROP * n + i], through = now[HWSIM_THROUGH * n + i];
        const double locked = now[HWSIM_LOCKED * n + i], reachable = now[HWSIM_REACHABLE * n + i];
        EXPECT(power >= 0.0 && power <= s->rings.limit_mw[i]);
        EXPECT(shift >= 0.0 && isfinite(shift));
        EXPECT(drop >= 0.0 && drop <= s->rings.peak_drop[i]);
        EXPECT(through >= 0.0 && drop + through <= 1.0 + 1e-12);
        EXPECT(locked == 0.0 || locked == 1.0);
        EXPECT(reachable == 0.0 || reachable == 1.0);
        EXPECT(fabs(now[HWSIM_DETUNING_GHZ * n + i]) <= 0.5 * s->rings.fsr_ghz[i] * (1.0 + 1e-9));
        EXPECT(isfinite(now[HWSIM_RESONANCE_GHZ * n + i]) && isfinite(now[HWSIM_SINCE_US * n + i]));
        EXPECT(!before || now[HWSIM_ENERGY_NJ * n + i] >= before[HWSIM_ENERGY_NJ * n + i]);
    }
}

static int tune_some(subject *s)
{
    const int64_t n = below(&seed, 4) ? below(&seed, (int)s->config.rings + 1) : s->config.rings;
    int64_t *ring = array(n, sizeof *ring);
    double *line = array(n, sizeof *line);
    for (int64_t k = 0; k < n; k++) {
        ring[k] = n == s->config.rings ? k : below(&seed, (int)s->config.rings);
        line[k] = between(-3000.0, 3000.0);
    }
    if (n && !below(&seed, 8)) {
        ring[below(&seed, (int)n)] = below(&seed, 2) ? -1 : s->config.rings;
    }
    if (n && !below(&seed, 8)) {
        line[below(&seed, (int)n)] = NAN;
    }
    const int status = hwsim_bank_tune(s->bank, n, ring, line);
    free(ring);
    free(line);
    return status;
}

/* One random call; its status. */
static int act(subject *s)
{
    /* One ring too far at either end. */
    const int64_t ring = below(&seed, (int)s->config.rings + 2) - 1;
    switch (below(&seed, 7)) {
    case 0:
    case 1:
        return tune_some(s);
    case 2: {
        const double ramp = odd_or(between(-0.01, 0.01));
        return hwsim_bank_set_ambient(s->bank, between(-20.0, 20.0), fabs(ramp) > 1.0 ? NAN : ramp);
    }
    case 3:
        return hwsim_bank_set_fault(s->bank, ring, below(&seed, HWSIM_STUCK + 3) - 1);
    case 4:
        return hwsim_bank_set_lit(s->bank, ring, below(&seed, 2));
    default: {
        const double us = below(&seed, 2) ? s->config.step_us * below(&seed, 40) : between(0.0, 30.0);
        return hwsim_bank_advance(s->bank, odd_or(us));
    }
    }
}

static void live(subject *s)
{
    const int64_t n = s->config.rings;
    double *before = read_all(s);
    for (int call = 0; call < 40; call++) {
        const double then_us = hwsim_bank_time_us(s->bank);
        const int status = act(s);
        double *now = read_all(s);
        EXPECT(status == HWSIM_OK || strcmp(hwsim_strerror(status), "unknown status") != 0);
        EXPECT(hwsim_bank_time_us(s->bank) >= then_us);
        holds(s, now, before);
        /* A refused call has changed nothing. */
        EXPECT(status == HWSIM_OK || memcmp(now, before, (size_t)(FIELDS * n) * sizeof *now) == 0);
        free(before);
        before = now;
    }
    free(before);
}

int main(int argc, char **argv)
{
    int made = 0;
    if (argc != 3) {
        return 2;
    }
    seed = strtoull(argv[1], NULL, 10);
    const int banks = atoi(argv[2]);
    for (int k = 0; k < banks && !failures; k++) {
        subject s;
        if (make(&s)) {
            made++;
            live(&s);
        }
        release(&s);
    }
    EXPECT(failures || made > banks / 2); /* most of what is drawn is a bank */
    printf("%d banks, %d broken laws\n", made, failures);
    return failures != 0;
}

/* The contract of hwsim.h, tested from C. Prints one line and exits 0, or names the first broken law and exits 1. */
#define COUNTING_SELF
#include "counting.h"
#include "hwsim.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RINGS = 12, PER_PORT = 4 };

static long allocations;
static long fail_at = -1; /* the allocation that fails, counted from 0 */

void *counting_calloc(size_t count, size_t size)
{
    return allocations++ == fail_at ? NULL : calloc(count, size);
}

void *counting_malloc(size_t size)
{
    return allocations++ == fail_at ? NULL : malloc(size);
}

void *counting_realloc(void *pointer, size_t size)
{
    return allocations++ == fail_at ? NULL : realloc(pointer, size);
}

#define EXPECT(condition)                                                        \
    do {                                                                         \
        if (!(condition)) {                                                      \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

typedef struct inputs {
    double tau[RINGS], gain[RINGS], limit[RINGS], fsr[RINGS], fwhm[RINGS], peak[RINGS], drift[RINGS], cold[RINGS],
        calibration[RINGS], crosstalk[2];
    uint8_t law[RINGS];
    hwsim_config config;
    hwsim_rings rings;
} inputs;

/* Every ring: tau 4 us, 100 GHz/mW, up to 30 mW, cold 200 GHz above line 0. */
static void prepare(inputs *in, uint8_t law)
{
    memset(in, 0, sizeof *in);
    for (int i = 0; i < RINGS; i++) {
        in->tau[i] = 4.0;
        in->gain[i] = 100.0;
        in->limit[i] = 30.0;
        in->fsr[i] = 10000.0;
        in->fwhm[i] = 25.0;
        in->peak[i] = 0.9;
        in->drift[i] = 10.0;
        in->cold[i] = 200.0;
        in->calibration[i] = 1.0;
        in->law[i] = law;
    }
    in->config.rings = RINGS;
    in->config.rings_per_port = PER_PORT;
    in->config.step_us = 1.0;
    in->config.lock_ghz = 2.5;
    in->config.unlock_ghz = 5.0;
    in->config.overdrive_gain = 4.0;
    in->config.loop_ticks = 1;
    in->config.loop_ratio = 0.75;
    in->config.dither_ghz = 0.5;
    in->config.capture = 0.01;
    in->config.compensate = 1;
    in->config.crosstalk = in->crosstalk;
    in->rings.tau_us = in->tau;
    in->rings.gain_ghz_per_mw = in->gain;
    in->rings.limit_mw = in->limit;
    in->rings.fsr_ghz = in->fsr;
    in->rings.fwhm_ghz = in->fwhm;
    in->rings.peak_drop = in->peak;
    in->rings.drift_ghz_per_k = in->drift;
    in->rings.cold_ghz = in->cold;
    in->rings.calibration = in->calibration;
    in->rings.law = in->law;
}

static hwsim_bank *made(const inputs *in)
{
    hwsim_bank *bank = NULL;
    EXPECT(hwsim_bank_new(&in->config, &in->rings, &bank) == HWSIM_OK);
    return bank;
}

static void tune_all(hwsim_bank *bank, double line_ghz)
{
    int64_t ring[RINGS];
    double line[RINGS];
    for (int i = 0; i < RINGS; i++) {
        ring[i] = i;
        line[i] = line_ghz;
    }
    EXPECT(hwsim_bank_tune(bank, RINGS, ring, line) == HWSIM_OK);
}

static double read_one(const hwsim_bank *bank, int field, int ring)
{
    double out[RINGS];
    EXPECT(hwsim_bank_read(bank, field, out, RINGS) == HWSIM_OK);
    return out[ring];
}

/* 200 GHz from cold at 100 GHz/mW is 2 mW; shift(t) = 200 (1 - exp(-t/4)); 2 mW for 8 us is 16 nJ. */
static void step_response_is_exponential(void)
{
    inputs in;
    hwsim_bank *bank;
    prepare(&in, HWSIM_OPEN_LOOP);
    bank = made(&in);
    tune_all(bank, 0.0);
    EXPECT(hwsim_bank_advance(bank, 8.0) == HWSIM_OK);
    EXPECT(hwsim_bank_time_us(bank) == 8.0);
    EXPECT(fabs(read_one(bank, HWSIM_SHIFT_GHZ, 5) - 200.0 * (1.0 - exp(-2.0))) < 1e-10);
    EXPECT(fabs(read_one(bank, HWSIM_POWER_MW, 5) - 2.0) < 1e-12);
    EXPECT(fabs(read_one(bank, HWSIM_ENERGY_NJ, 5) - 16.0) < 1e-12);
    EXPECT(read_one(bank, HWSIM_LOCKED, 5) == 0.0);
    EXPECT(hwsim_bank_advance(bank, 12.0) == HWSIM_OK); /* 4 ln(200/2.5) = 17.53 us: locked at tick 18 */
    EXPECT(read_one(bank, HWSIM_LOCKED, 5) == 1.0);
    EXPECT(read_one(bank, HWSIM_SINCE_US, 5) == 18.0);
    hwsim_bank_free(bank);
}

/* To 1000 GHz with gain 4 the command is clipped at 30 mW = 3000 GHz: end at 4 ln(3000/2000) us, then at rest. */
static void over_drive_ends_on_the_line(void)
{
    inputs in;
    hwsim_bank *bank;
    prepare(&in, HWSIM_OVER_DRIVE);
    bank = made(&in);
    tune_all(bank, -800.0);
    EXPECT(read_one(bank, HWSIM_POWER_MW, 0) == 30.0);
    EXPECT(hwsim_bank_advance(bank, 4.0 * log(1.5)) == HWSIM_OK);
    EXPECT(fabs(read_one(bank, HWSIM_DETUNING_GHZ, 0)) < 1e-9);
    EXPECT(hwsim_bank_advance(bank, 50.0) == HWSIM_OK);
    EXPECT(fabs(read_one(bank, HWSIM_DETUNING_GHZ, 0)) < 1e-9);
    EXPECT(fabs(read_one(bank, HWSIM_POWER_MW, 0) - 10.0) < 1e-12);
    hwsim_bank_free(bank);
}

/* A 1 % calibration error leaves 1000 - 1000/1.01 = 9.90 GHz, which the loop multiplies by 0.75 each microsecond. */
static void loop_removes_what_calibration_leaves(void)
{
    inputs in;
    hwsim_bank *bank;
    double before;
    prepare(&in, HWSIM_PI_LOCK);
    for (int i = 0; i < RINGS; i++) {
        in.calibration[i] = 1.01;
    }
    bank = made(&in);
    tune_all(bank, -800.0);
    EXPECT(hwsim_bank_advance(bank, 60.0) == HWSIM_OK);
    before = read_one(bank, HWSIM_DETUNING_GHZ, 0);
    EXPECT(fabs(before) < 9.9);
    EXPECT(hwsim_bank_advance(bank, 60.0) == HWSIM_OK);
    EXPECT(fabs(read_one(bank, HWSIM_DETUNING_GHZ, 0)) < 1e-4);
    EXPECT(read_one(bank, HWSIM_LOCKED, 0) == 1.0);
    hwsim_bank_free(bank);
}

static void one_go_equals_many_steps(void)
{
    for (uint8_t law = HWSIM_OPEN_LOOP; law <= HWSIM_PI_LOCK; law++) {
        inputs in;
        hwsim_bank *one, *many;
        prepare(&in, law);
        in.crosstalk[0] = 0.03;
        in.crosstalk[1] = 0.01;
        in.config.crosstalk_reach = 2;
        in.calibration[2] = 1.02;
        one = made(&in);
        many = made(&in);
        tune_all(one, -600.0);
        tune_all(many, -600.0);
        EXPECT(hwsim_bank_advance(one, 37.0) == HWSIM_OK);
        for (int k = 0; k < 370; k++) {
            EXPECT(hwsim_bank_advance(many, 0.1) == HWSIM_OK);
        }
        EXPECT(fabs(hwsim_bank_time_us(one) - hwsim_bank_time_us(many)) < 1e-9);
        for (int field = HWSIM_SHIFT_GHZ; field <= HWSIM_REACHABLE; field++) {
            for (int i = 0; i < RINGS; i++) {
                EXPECT(fabs(read_one(one, field, i) - read_one(many, field, i)) < 1e-9);
            }
        }
        hwsim_bank_free(one);
        hwsim_bank_free(many);
    }
}

static void stepping_allocates_nothing(void)
{
    inputs in;
    hwsim_bank *bank;
    prepare(&in, HWSIM_PI_LOCK);
    allocations = 0;
    bank = made(&in);
    EXPECT(allocations == 2);
    tune_all(bank, -100.0);
    EXPECT(hwsim_bank_advance(bank, 1000.5) == HWSIM_OK);
    EXPECT(hwsim_bank_set_fault(bank, 0, HWSIM_STUCK) == HWSIM_OK);
    EXPECT(hwsim_bank_set_ambient(bank, 1.0, 0.01) == HWSIM_OK);
    EXPECT(hwsim_bank_advance(bank, 10.0) == HWSIM_OK);
    (void)read_one(bank, HWSIM_DROP, 0);
    EXPECT(allocations == 2);
    hwsim_bank_free(bank);
}

static void running_out_of_memory_leaks_nothing(void)
{
    inputs in;
    hwsim_bank *bank = NULL;
    prepare(&in, HWSIM_OPEN_LOOP);
    for (long k = 0; k < 2; k++) {
        allocations = 0;
        fail_at = k;
        EXPECT(hwsim_bank_new(&in.config, &in.rings, &bank) == HWSIM_E_MEMORY);
        EXPECT(bank == NULL);
    }
    fail_at = -1;
}

static int status_with(const inputs *in)
{
    hwsim_bank *bank = NULL;
    const int status = hwsim_bank_new(&in->config, &in->rings, &bank);
    hwsim_bank_free(bank);
    return status;
}

static void bad_parameters_are_refused(void)
{
    static const double bad[] = {-1.0, 0.0, NAN, INFINITY};
    inputs in;
    double *const positive[] = {in.tau, in.gain, in.limit, in.fsr, in.fwhm, in.peak, in.calibration};
    for (size_t k = 0; k < sizeof positive / sizeof positive[0]; k++) {
        for (size_t j = 0; j < sizeof bad / sizeof bad[0]; j++) {
            prepare(&in, HWSIM_OPEN_LOOP);
            positive[k][RINGS - 1] = bad[j];
            EXPECT(status_with(&in) == HWSIM_E_PARAMETER);
        }
    }
    prepare(&in, HWSIM_OPEN_LOOP);
    in.law[3] = 9;
    EXPECT(status_with(&in) == HWSIM_E_CODE);
    prepare(&in, HWSIM_OPEN_LOOP);
    in.config.rings_per_port = 5;
    EXPECT(status_with(&in) == HWSIM_E_SIZE);
    prepare(&in, HWSIM_OPEN_LOOP);
    in.config.unlock_ghz = in.config.lock_ghz;
    EXPECT(status_with(&in) == HWSIM_E_PARAMETER);
    prepare(&in, HWSIM_OPEN_LOOP);
    in.config.crosstalk_reach = 2;
    in.crosstalk[0] = 0.4;
    in.crosstalk[1] = 0.1;
    EXPECT(status_with(&in) == HWSIM_E_PARAMETER);
    prepare(&in, HWSIM_OPEN_LOOP);
    in.rings.tau_us = NULL;
    EXPECT(status_with(&in) == HWSIM_E_NULL);
}

static void refused_calls_change_nothing(void)
{
    inputs in;
    hwsim_bank *bank;
    const int64_t ring[2] = {0, RINGS};
    const double line[2] = {0.0, 0.0};
    const double nan_line[1] = {NAN};
    double out[RINGS];
    prepare(&in, HWSIM_OPEN_LOOP);
    bank = made(&in);
    EXPECT(hwsim_bank_read(bank, HWSIM_DROP, out, RINGS) == HWSIM_E_UNTUNED);
    EXPECT(hwsim_bank_tune(bank, 2, ring, line) == HWSIM_E_RING);
    EXPECT(hwsim_bank_tune(bank, 1, ring, nan_line) == HWSIM_E_PARAMETER);
    EXPECT(hwsim_bank_tune(bank, 1, NULL, line) == HWSIM_E_NULL);
    EXPECT(hwsim_bank_tune(bank, -1, ring, line) == HWSIM_E_SIZE);
    EXPECT(hwsim_bank_read(bank, HWSIM_DROP, out, RINGS) == HWSIM_E_UNTUNED);
    EXPECT(hwsim_bank_read(bank, 99, out, RINGS) == HWSIM_E_CODE);
    EXPECT(hwsim_bank_read(bank, HWSIM_SHIFT_GHZ, out, RINGS - 1) == HWSIM_E_SIZE);
    EXPECT(hwsim_bank_advance(bank, -1.0) == HWSIM_E_TIME);
    EXPECT(hwsim_bank_advance(bank, NAN) == HWSIM_E_TIME);
    EXPECT(hwsim_bank_advance(bank, 1e300) == HWSIM_E_TIME);
    EXPECT(hwsim_bank_advance(NULL, 1.0) == HWSIM_E_NULL);
    EXPECT(hwsim_bank_set_fault(bank, 0, 7) == HWSIM_E_CODE);
    EXPECT(hwsim_bank_set_fault(bank, -1, HWSIM_STUCK) == HWSIM_E_RING);
    EXPECT(hwsim_bank_set_lit(bank, RINGS, 1) == HWSIM_E_RING);
    EXPECT(hwsim_bank_set_ambient(bank, INFINITY, 0.0) == HWSIM_E_PARAMETER);
    EXPECT(hwsim_bank_time_us(bank) == 0.0);
    EXPECT(read_one(bank, HWSIM_SHIFT_GHZ, 0) == 0.0);
    hwsim_bank_free(bank);
    hwsim_bank_free(NULL);
}

static void every_status_has_its_own_line(void)
{
    for (int a = HWSIM_E_UNTUNED; a <= HWSIM_OK; a++) {
        EXPECT(strcmp(hwsim_strerror(a), "unknown status") != 0);
        for (int b = HWSIM_E_UNTUNED; b < a; b++) {
            EXPECT(strcmp(hwsim_strerror(a), hwsim_strerror(b)) != 0);
        }
    }
    EXPECT(strcmp(hwsim_strerror(-99), "unknown status") == 0);
}

int main(void)
{
    step_response_is_exponential();
    over_drive_ends_on_the_line();
    loop_removes_what_calibration_leaves();
    one_go_equals_many_steps();
    stepping_allocates_nothing();
    running_out_of_memory_leaks_nothing();
    bad_parameters_are_refused();
    refused_calls_change_nothing();
    every_status_has_its_own_line();
    puts("hwsim bank: all laws hold");
    return 0;
}

/* Making, reading and releasing a bank. */
#include "bank_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DOUBLE_ARRAYS = 24, BYTE_ARRAYS = 7 };

static int all_in(const double *x, int64_t n, double low, int low_open, double high)
{
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i]) || x[i] < low || (low_open && x[i] == low) || x[i] > high) {
            return 0;
        }
    }
    return 1;
}

static int positive(double x)
{
    return isfinite(x) && x > 0.0;
}

static int check_config(const hwsim_config *c)
{
    if (c->rings < 1 || c->rings_per_port < 1 || c->rings % c->rings_per_port != 0 || c->loop_ticks < 1 ||
        c->crosstalk_reach < 0 || c->crosstalk_reach >= c->rings_per_port || c->rings > INT64_MAX / 1024) {
        return HWSIM_E_SIZE;
    }
    if (!positive(c->step_us) || !positive(c->lock_ghz) || !isfinite(c->unlock_ghz) ||
        c->unlock_ghz <= c->lock_ghz || !isfinite(c->overdrive_gain) || c->overdrive_gain <= 1.0 ||
        !positive(c->loop_ratio) || c->loop_ratio >= 1.0 || !positive(c->dither_ghz) || !positive(c->capture) ||
        c->capture >= 1.0) {
        return HWSIM_E_PARAMETER;
    }
    if (c->crosstalk_reach > 0) {
        double sum = 0.0;
        if (c->crosstalk == NULL) {
            return HWSIM_E_NULL;
        }
        if (!all_in(c->crosstalk, c->crosstalk_reach, 0.0, 0, 0.5)) {
            return HWSIM_E_PARAMETER;
        }
        for (int64_t d = 0; d < c->crosstalk_reach; d++) {
            sum += 2.0 * c->crosstalk[d];
        }
        if (sum >= 1.0) {
            return HWSIM_E_PARAMETER;
        }
    }
    return HWSIM_OK;
}

static int check_rings(const hwsim_rings *r, int64_t n)
{
    const double big = 1e15;
    if (r->tau_us == NULL || r->gain_ghz_per_mw == NULL || r->limit_mw == NULL || r->fsr_ghz == NULL ||
        r->fwhm_ghz == NULL || r->peak_drop == NULL || r->drift_ghz_per_k == NULL || r->cold_ghz == NULL ||
        r->calibration == NULL || r->law == NULL) {
        return HWSIM_E_NULL;
    }
    if (!all_in(r->tau_us, n, 0.0, 1, big) || !all_in(r->gain_ghz_per_mw, n, 0.0, 1, big) ||
        !all_in(r->limit_mw, n, 0.0, 1, big) || !all_in(r->fsr_ghz, n, 0.0, 1, big) ||
        !all_in(r->fwhm_ghz, n, 0.0, 1, big) || !all_in(r->peak_drop, n, 0.0, 1, 1.0) ||
        !all_in(r->drift_ghz_per_k, n, 0.0, 0, big) || !all_in(r->cold_ghz, n, -big, 0, big) ||
        !all_in(r->calibration, n, 0.0, 1, big)) {
        return HWSIM_E_PARAMETER;
    }
    for (int64_t i = 0; i < n; i++) {
        if (r->fwhm_ghz[i] >= r->fsr_ghz[i]) {
            return HWSIM_E_PARAMETER;
        }
        if (r->law[i] > HWSIM_PI_LOCK) {
            return HWSIM_E_CODE;
        }
    }
    return HWSIM_OK;
}

static double *take(double **cursor, int64_t n)
{
    double *array = *cursor;
    *cursor += n;
    return array;
}

static void lay_out(hwsim_bank *b)
{
    const int64_t n = b->rings;
    double *cursor = b->block;
    uint8_t *byte = b->bytes;
    double **const ring_arrays[DOUBLE_ARRAYS] = {
        &b->tau_us,     &b->gain,      &b->limit_mw,  &b->fsr_ghz,  &b->fwhm_ghz,     &b->peak_drop,
        &b->drift,      &b->cold_ghz,  &b->calibration, &b->decay,  &b->shift_ghz,    &b->drive_ghz,
        &b->goal_ghz,   &b->band_ghz,  &b->since_us,  &b->line_ghz, &b->wanted_ghz,   &b->steady_mw,
        &b->trim_mw,    &b->boost_mw,  &b->boost_end_us, &b->power_mw, &b->energy_nj, &b->error_ghz};
    uint8_t **const byte_arrays[BYTE_ARRAYS] = {&b->law,      &b->fault,   &b->lit,     &b->tuned,
                                                &b->boosting, &b->engaged, &b->retuning};
    for (int k = 0; k < DOUBLE_ARRAYS; k++) {
        *ring_arrays[k] = take(&cursor, n);
    }
    b->port_mark_us = take(&cursor, b->ports);
    b->port_next_end_us = take(&cursor, b->ports);
    b->crosstalk = take(&cursor, b->crosstalk_reach);
    for (int k = 0; k < BYTE_ARRAYS; k++) {
        *byte_arrays[k] = byte;
        byte += n;
    }
    b->port_has_loop = byte;
}

static void start_cold(hwsim_bank *b, const hwsim_rings *r)
{
    const size_t bytes = (size_t)b->rings * sizeof(double);
    memcpy(b->tau_us, r->tau_us, bytes);
    memcpy(b->gain, r->gain_ghz_per_mw, bytes);
    memcpy(b->limit_mw, r->limit_mw, bytes);
    memcpy(b->fsr_ghz, r->fsr_ghz, bytes);
    memcpy(b->fwhm_ghz, r->fwhm_ghz, bytes);
    memcpy(b->peak_drop, r->peak_drop, bytes);
    memcpy(b->drift, r->drift_ghz_per_k, bytes);
    memcpy(b->cold_ghz, r->cold_ghz, bytes);
    memcpy(b->calibration, r->calibration, bytes);
    memcpy(b->law, r->law, (size_t)b->rings);
    for (int64_t i = 0; i < b->rings; i++) {
        b->decay[i] = exp(-b->step_us / b->tau_us[i]);
        b->goal_ghz[i] = HUGE_VAL; /* no line yet, so never within any band */
        b->band_ghz[i] = b->lock_ghz;
        b->lit[i] = 1;
        if (b->law[i] == HWSIM_PI_LOCK) {
            b->port_has_loop[i / b->rings_per_port] = 1;
        }
    }
    for (int64_t p = 0; p < b->ports; p++) {
        b->port_next_end_us[p] = HUGE_VAL;
    }
}

int hwsim_bank_new(const hwsim_config *config, const hwsim_rings *rings, hwsim_bank **bank)
{
    hwsim_bank *b = NULL;
    size_t doubles, bytes;
    int status;

    if (config == NULL || rings == NULL || bank == NULL) {
        return HWSIM_E_NULL;
    }
    status = check_config(config);
    if (status != HWSIM_OK) {
        return status;
    }
    status = check_rings(rings, config->rings);
    if (status != HWSIM_OK) {
        return status;
    }
    b = calloc(1, sizeof *b);
    if (b == NULL) {
        return HWSIM_E_MEMORY;
    }
    b->rings = config->rings;
    b->rings_per_port = config->rings_per_port;
    b->ports = config->rings / config->rings_per_port;
    b->step_us = config->step_us;
    b->lock_ghz = config->lock_ghz;
    b->unlock_ghz = config->unlock_ghz;
    b->overdrive_gain = config->overdrive_gain;
    b->loop_ticks = config->loop_ticks;
    b->loop_ratio = config->loop_ratio;
    b->dither_ghz = config->dither_ghz;
    b->capture = config->capture;
    b->crosstalk_reach = config->crosstalk_reach;
    b->compensate = config->compensate != 0;

    doubles = (size_t)(DOUBLE_ARRAYS * b->rings + 2 * b->ports + b->crosstalk_reach);
    bytes = (size_t)(BYTE_ARRAYS * b->rings + b->ports);
    b->block = calloc(1, doubles * sizeof(double) + bytes);
    if (b->block == NULL) {
        free(b);
        return HWSIM_E_MEMORY;
    }
    b->bytes = (uint8_t *)(b->block + doubles);
    lay_out(b);
    for (int64_t d = 0; d < b->crosstalk_reach; d++) {
        b->crosstalk[d] = config->crosstalk[d];
    }
    start_cold(b, rings);
    *bank = b;
    return HWSIM_OK;
}

void hwsim_bank_free(hwsim_bank *bank)
{
    if (bank != NULL) {
        free(bank->block);
        free(bank);
    }
}

double hwsim_bank_time_us(const hwsim_bank *bank)
{
    return (double)bank->tick * bank->step_us + bank->phase_us;
}

double hwsim_bank_ambient_k(const hwsim_bank *bank)
{
    return hwsim_ambient_at(bank, hwsim_bank_time_us(bank));
}

static double field_of(const hwsim_bank *bank, int field, int64_t i)
{
    const double now_us = hwsim_bank_time_us(bank);
    const double detuning = hwsim_detuning(bank, i, now_us);
    const double lorentz = hwsim_lorentz(detuning, bank->fwhm_ghz[i]);
    switch (field) {
    case HWSIM_SHIFT_GHZ:
        return bank->shift_ghz[i];
    case HWSIM_POWER_MW:
        return bank->power_mw[i];
    case HWSIM_ENERGY_NJ:
        return bank->energy_nj[i];
    case HWSIM_RESONANCE_GHZ:
        return hwsim_resonance(bank, i, now_us);
    case HWSIM_DETUNING_GHZ:
        return detuning;
    case HWSIM_DROP:
        return bank->peak_drop[i] * lorentz;
    case HWSIM_THROUGH:
        return hwsim_through(bank->peak_drop[i], lorentz);
    case HWSIM_LOCKED:
        return bank->tuned[i] && bank->band_ghz[i] == bank->unlock_ghz ? 1.0 : 0.0;
    case HWSIM_SINCE_US:
        return bank->since_us[i];
    default:
        return hwsim_reachable(bank, i) ? 1.0 : 0.0;
    }
}

int hwsim_bank_read(const hwsim_bank *bank, int field, double *out, int64_t n)
{
    const int needs_line = field == HWSIM_DETUNING_GHZ || field == HWSIM_DROP || field == HWSIM_THROUGH ||
                           field == HWSIM_SINCE_US || field == HWSIM_REACHABLE;
    if (bank == NULL || out == NULL) {
        return HWSIM_E_NULL;
    }
    if (field < HWSIM_SHIFT_GHZ || field > HWSIM_REACHABLE) {
        return HWSIM_E_CODE;
    }
    if (n != bank->rings) {
        return HWSIM_E_SIZE;
    }
    if (needs_line && memchr(bank->tuned, 0, (size_t)bank->rings) != NULL) {
        return HWSIM_E_UNTUNED;
    }
    for (int64_t i = 0; i < n; i++) {
        out[i] = field_of(bank, field, i);
    }
    return HWSIM_OK;
}

const char *hwsim_strerror(int status)
{
    switch (status) {
    case HWSIM_OK:
        return "no error";
    case HWSIM_E_NULL:
        return "a pointer that must be given is NULL";
    case HWSIM_E_MEMORY:
        return "out of memory";
    case HWSIM_E_SIZE:
        return "a count is out of range, or rings is not a multiple of rings_per_port";
    case HWSIM_E_PARAMETER:
        return "a physical parameter is not finite or out of range";
    case HWSIM_E_RING:
        return "a ring index is out of range";
    case HWSIM_E_TIME:
        return "a duration is negative, not finite or too long";
    case HWSIM_E_CODE:
        return "no such control law, fault or field";
    case HWSIM_E_UNTUNED:
        return "a ring has no line yet; tune every ring first";
    default:
        return "unknown status";
    }
}

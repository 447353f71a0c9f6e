/* Time: steps, ticks, and the calls that act at the present instant. */
#include "bank_internal.h"

#include <math.h>
#include <stddef.h>

static const double MAX_TICKS = 9007199254740992.0; /* 2^53 */

/* One whole tick of n rings whose drives stay as they are, and the judgement of their locks at its end. */
static void step_rings(int64_t n, double *restrict shift, const double *restrict drive,
                       const double *restrict decay, const double *restrict goal, const double *restrict drift,
                       double *restrict band, double *restrict since, double ambient, double lock, double unlock,
                       double next_us)
{
    for (int64_t i = 0; i < n; i++) {
        const double s = drive[i] + (shift[i] - drive[i]) * decay[i];
        const double error = fabs(goal[i] - drift[i] * ambient - s);
        const int inside = error <= band[i];
        shift[i] = s;
        band[i] = inside ? unlock : lock;
        since[i] = inside ? since[i] : next_us;
    }
}

static void judge_port(hwsim_bank *b, int64_t first, double ambient, double next_us)
{
    for (int64_t i = first; i < first + b->rings_per_port; i++) {
        const double error = fabs(b->goal_ghz[i] - b->drift[i] * ambient - b->shift_ghz[i]);
        const int inside = error <= b->band_ghz[i];
        b->band_ghz[i] = inside ? b->unlock_ghz : b->lock_ghz;
        b->since_us[i] = inside ? b->since_us[i] : next_us;
    }
}

static void relax_port(hwsim_bank *b, int64_t first, double dt_us)
{
    for (int64_t i = first; i < first + b->rings_per_port; i++) {
        b->shift_ghz[i] = b->drive_ghz[i] + (b->shift_ghz[i] - b->drive_ghz[i]) * exp(-dt_us / b->tau_us[i]);
    }
}

/* From one instant to another within a tick, stopping where an over-drive ends. */
static void glide(hwsim_bank *b, int64_t port, double from_us, double to_us)
{
    const int64_t first = port * b->rings_per_port;
    while (b->port_next_end_us[port] <= to_us) {
        const double end_us = fmax(b->port_next_end_us[port], from_us);
        relax_port(b, first, end_us - from_us);
        hwsim_port_end_boosts(b, port, end_us);
        from_us = end_us;
    }
    if (to_us > from_us) {
        relax_port(b, first, to_us - from_us);
    }
}

/* Take one port from (tick, phase) to (last_tick, last_phase). Ports are independent, so each is taken all the
 * way while its arrays are in the nearest cache. */
static void advance_port(hwsim_bank *b, int64_t port, int64_t last_tick, double last_phase_us)
{
    const int64_t first = port * b->rings_per_port;
    double phase_us = b->phase_us;
    for (int64_t tick = b->tick; tick < last_tick; tick++) {
        const double from_us = (double)tick * b->step_us + phase_us;
        const double to_us = (double)(tick + 1) * b->step_us;
        const double next_us = (double)(tick + 2) * b->step_us;
        const double ambient = hwsim_ambient_at(b, to_us);
        if (phase_us > 0.0 || b->port_next_end_us[port] <= to_us) {
            glide(b, port, from_us, to_us);
            judge_port(b, first, ambient, next_us);
        } else {
            step_rings(b->rings_per_port, b->shift_ghz + first, b->drive_ghz + first, b->decay + first,
                       b->goal_ghz + first, b->drift + first, b->band_ghz + first, b->since_us + first, ambient,
                       b->lock_ghz, b->unlock_ghz, next_us);
        }
        phase_us = 0.0;
        if (b->port_has_loop[port] && (tick + 1) % b->loop_ticks == 0) {
            hwsim_port_loop(b, port, to_us);
        }
    }
    if (last_phase_us > phase_us) {
        const double base_us = (double)last_tick * b->step_us;
        glide(b, port, base_us + phase_us, base_us + last_phase_us);
    }
    hwsim_port_count_energy(b, port, (double)last_tick * b->step_us + last_phase_us);
}

int hwsim_bank_advance(hwsim_bank *bank, double dt_us)
{
    double whole, last_phase_us;
    int64_t last_tick;
    if (bank == NULL) {
        return HWSIM_E_NULL;
    }
    if (!isfinite(dt_us) || dt_us < 0.0) {
        return HWSIM_E_TIME;
    }
    /* A duration within 1e-9 of a tick is that tick: ten times 0.1 us is one step of 1 us. */
    whole = floor((bank->phase_us + dt_us) / bank->step_us + 1e-9);
    if (whole + (double)bank->tick > MAX_TICKS) {
        return HWSIM_E_TIME;
    }
    last_tick = bank->tick + (int64_t)whole;
    last_phase_us = fmax(bank->phase_us + dt_us - whole * bank->step_us, 0.0);
    if (last_phase_us < 1e-9 * bank->step_us) {
        last_phase_us = 0.0;
    }
    if (last_tick > bank->tick || last_phase_us > bank->phase_us) {
        for (int64_t port = 0; port < bank->ports; port++) {
            advance_port(bank, port, last_tick, last_phase_us);
        }
        bank->tick = last_tick;
        bank->phase_us = last_phase_us;
    }
    return HWSIM_OK;
}

int hwsim_bank_tune(hwsim_bank *bank, int64_t n, const int64_t *ring, const double *line_ghz)
{
    double now_us;
    if (bank == NULL || (n > 0 && (ring == NULL || line_ghz == NULL))) {
        return HWSIM_E_NULL;
    }
    if (n < 0) {
        return HWSIM_E_SIZE;
    }
    for (int64_t k = 0; k < n; k++) {
        if (ring[k] < 0 || ring[k] >= bank->rings) {
            return HWSIM_E_RING;
        }
        if (!isfinite(line_ghz[k])) {
            return HWSIM_E_PARAMETER;
        }
    }
    for (int64_t k = 0; k < n; k++) {
        bank->line_ghz[ring[k]] = line_ghz[k];
        bank->tuned[ring[k]] = 1;
        bank->retuning[ring[k]] = 1;
    }
    now_us = hwsim_bank_time_us(bank);
    for (int64_t k = 0; k < n; k++) {
        if (bank->retuning[ring[k]]) { /* cleared for the whole port at its first ring */
            hwsim_port_retune(bank, ring[k] / bank->rings_per_port, now_us);
        }
    }
    return HWSIM_OK;
}

int hwsim_bank_set_ambient(hwsim_bank *bank, double offset_k, double ramp_k_per_us)
{
    if (bank == NULL) {
        return HWSIM_E_NULL;
    }
    if (!isfinite(offset_k) || !isfinite(ramp_k_per_us)) {
        return HWSIM_E_PARAMETER;
    }
    bank->ambient_at_us = hwsim_bank_time_us(bank);
    bank->ambient_k = offset_k;
    bank->ramp_k_per_us = ramp_k_per_us;
    return HWSIM_OK;
}

int hwsim_bank_set_fault(hwsim_bank *bank, int64_t ring, int fault)
{
    if (bank == NULL) {
        return HWSIM_E_NULL;
    }
    if (ring < 0 || ring >= bank->rings) {
        return HWSIM_E_RING;
    }
    if (fault < HWSIM_HEALTHY || fault > HWSIM_STUCK) {
        return HWSIM_E_CODE;
    }
    bank->fault[ring] = (uint8_t)fault;
    hwsim_port_apply(bank, ring / bank->rings_per_port, hwsim_bank_time_us(bank));
    return HWSIM_OK;
}

int hwsim_bank_set_lit(hwsim_bank *bank, int64_t ring, int lit)
{
    if (bank == NULL) {
        return HWSIM_E_NULL;
    }
    if (ring < 0 || ring >= bank->rings) {
        return HWSIM_E_RING;
    }
    bank->lit[ring] = lit != 0;
    return HWSIM_OK;
}

/* Powers: calibration with crosstalk, choice of order, over-drive, lock loop, faults. */
#include "bank_internal.h"

#include <math.h>

enum { MAX_SWEEPS = 200, SWEEPS_WITH_CHOICE = 20 };

/* Powers are settled when no ring's own shift moves by more than this between two sweeps. [GHz] */
static const double SETTLED_GHZ = 1e-12;

static double clamp(double x, double low, double high)
{
    return x < low ? low : (x > high ? high : x);
}

void hwsim_port_count_energy(hwsim_bank *bank, int64_t port, double time_us)
{
    const int64_t first = port * bank->rings_per_port;
    const double dt_us = time_us - bank->port_mark_us[port];
    for (int64_t i = first; i < first + bank->rings_per_port; i++) {
        bank->energy_nj[i] += bank->power_mw[i] * dt_us;
    }
    bank->port_mark_us[port] = time_us;
}

void hwsim_port_apply(hwsim_bank *bank, int64_t port, double time_us)
{
    const int64_t first = port * bank->rings_per_port;
    const int64_t end = first + bank->rings_per_port;
    hwsim_port_count_energy(bank, port, time_us);
    for (int64_t i = first; i < end; i++) {
        if (bank->fault[i] == HWSIM_DEAD_HEATER) {
            bank->power_mw[i] = 0.0;
        } else if (bank->fault[i] == HWSIM_HEALTHY) {
            bank->power_mw[i] = bank->boosting[i]
                                    ? bank->boost_mw[i]
                                    : clamp(bank->steady_mw[i] + bank->trim_mw[i], 0.0, bank->limit_mw[i]);
        }
    }
    for (int64_t i = first; i < end; i++) {
        bank->drive_ghz[i] = bank->gain[i] * (bank->power_mw[i] + hwsim_neighbour_mw(bank, bank->power_mw, i));
    }
}

/* Put into wanted_ghz the shift, among need + m fsr, that is nearest to the present one and lies in [low, high];
 * where there is none, the smallest above low. */
static void choose_order(hwsim_bank *bank, int64_t i, double time_us, double low, double high)
{
    const double ambient_ghz = bank->drift[i] * hwsim_ambient_at(bank, time_us);
    const double need = bank->cold_ghz[i] - ambient_ghz - bank->line_ghz[i];
    const double fsr = bank->fsr_ghz[i];
    const double lowest = ceil((low - need) / fsr);
    const double highest = floor((high - need) / fsr);
    const double nearest = nearbyint((bank->shift_ghz[i] - need) / fsr);
    const double order = lowest > highest ? lowest : clamp(nearest, lowest, highest);
    bank->wanted_ghz[i] = need + order * fsr;
    bank->goal_ghz[i] = bank->wanted_ghz[i] + ambient_ghz;
}

/* Projected Gauss-Seidel on gain (P_i + sum c P_j) = wanted with 0 <= P <= limit. Crosstalk sums below 1, so the
 * system is diagonally dominant and the sweeps contract. */
static void solve_powers(hwsim_bank *bank, int64_t port, double time_us)
{
    const int64_t first = port * bank->rings_per_port;
    const int64_t end = first + bank->rings_per_port;
    double moved = HUGE_VAL;
    for (int sweep = 0; sweep < MAX_SWEEPS && moved > SETTLED_GHZ; sweep++) {
        moved = 0.0;
        for (int64_t i = first; i < end; i++) {
            const double gain = bank->gain[i] * bank->calibration[i];
            const double low = bank->compensate ? gain * hwsim_neighbour_mw(bank, bank->steady_mw, i) : 0.0;
            const double high = low + gain * bank->limit_mw[i];
            const int outside = bank->wanted_ghz[i] < low || bank->wanted_ghz[i] > high;
            double power;
            if (!bank->tuned[i]) {
                continue;
            }
            if (bank->retuning[i] && (sweep == 0 || (outside && sweep < SWEEPS_WITH_CHOICE))) {
                choose_order(bank, i, time_us, low, high);
            }
            power = clamp((bank->wanted_ghz[i] - low) / gain, 0.0, bank->limit_mw[i]);
            moved = fmax(moved, fabs(power - bank->steady_mw[i]) * gain);
            bank->steady_mw[i] = power;
        }
    }
}

static void start_boost(hwsim_bank *bank, int64_t i, double before_mw, double time_us)
{
    const double gain = bank->gain[i] * bank->calibration[i];
    const double step_mw = bank->steady_mw[i] - before_mw;
    const double boost_mw = clamp(before_mw + bank->overdrive_gain * step_mw, 0.0, bank->limit_mw[i]);
    const double drive = gain * (boost_mw + hwsim_neighbour_mw(bank, bank->steady_mw, i));
    const double whole = drive - bank->shift_ghz[i];
    const double rest = drive - bank->wanted_ghz[i];
    /* Same sign and rest shorter: the boost passes the wanted shift. Where it hardly would, at the heater's limit
     * or for no hop at all, the end of the boost is ill-defined and there is nothing to gain. */
    if (whole * rest > 0.0 && fabs(whole) > fabs(rest) && fabs(rest) > bank->lock_ghz) {
        bank->boosting[i] = 1;
        bank->boost_mw[i] = boost_mw;
        bank->boost_end_us[i] = time_us + bank->tau_us[i] * log(whole / rest);
    }
}

static void find_next_end(hwsim_bank *bank, int64_t port)
{
    const int64_t first = port * bank->rings_per_port;
    double next = HUGE_VAL;
    for (int64_t i = first; i < first + bank->rings_per_port; i++) {
        if (bank->boosting[i]) {
            next = fmin(next, bank->boost_end_us[i]);
        }
    }
    bank->port_next_end_us[port] = next;
}

static void judge_lock(hwsim_bank *bank, int64_t i, double time_us)
{
    const double ambient = hwsim_ambient_at(bank, time_us);
    const double error = bank->goal_ghz[i] - bank->drift[i] * ambient - bank->shift_ghz[i];
    bank->band_ghz[i] = fabs(error) <= bank->lock_ghz ? bank->unlock_ghz : bank->lock_ghz;
    bank->since_us[i] = time_us;
}

void hwsim_port_retune(hwsim_bank *bank, int64_t port, double time_us)
{
    const int64_t first = port * bank->rings_per_port;
    const int64_t end = first + bank->rings_per_port;
    solve_powers(bank, port, time_us);
    for (int64_t i = first; i < end; i++) {
        if (!bank->retuning[i]) {
            continue;
        }
        bank->retuning[i] = 0;
        bank->boosting[i] = 0;
        bank->engaged[i] = 0;
        bank->trim_mw[i] = 0.0;
        if (bank->law[i] == HWSIM_OVER_DRIVE) {
            start_boost(bank, i, bank->power_mw[i], time_us);
        }
        judge_lock(bank, i, time_us);
    }
    find_next_end(bank, port);
    hwsim_port_apply(bank, port, time_us);
}

void hwsim_port_end_boosts(hwsim_bank *bank, int64_t port, double time_us)
{
    const int64_t first = port * bank->rings_per_port;
    for (int64_t i = first; i < first + bank->rings_per_port; i++) {
        if (bank->boosting[i] && bank->boost_end_us[i] <= time_us) {
            bank->boosting[i] = 0;
        }
    }
    find_next_end(bank, port);
    hwsim_port_apply(bank, port, time_us);
}

/* Detuning as the loop sees it: the drop power is sampled a dither to either side. The reciprocal of a Lorentzian
 * is a parabola, so the difference of the two reciprocals is linear in the detuning. Returns 0 when too little
 * light is seen to tell. */
static int measure(const hwsim_bank *bank, int64_t i, double time_us, double *error_ghz)
{
    const double a = bank->dither_ghz;
    const double fwhm = bank->fwhm_ghz[i];
    const double detuning = hwsim_detuning(bank, i, time_us);
    const double above = hwsim_lorentz(detuning + a, fwhm);
    const double below = hwsim_lorentz(detuning - a, fwhm);
    if (!bank->tuned[i] || !bank->lit[i] || 0.5 * (above + below) < bank->capture) {
        return 0;
    }
    *error_ghz = fwhm * fwhm / (16.0 * a) * (1.0 / above - 1.0 / below);
    return 1;
}

void hwsim_port_loop(hwsim_bank *bank, int64_t port, double time_us)
{
    const int64_t first = port * bank->rings_per_port;
    for (int64_t i = first; i < first + bank->rings_per_port; i++) {
        double error, pole, gain, asked;
        if (bank->law[i] != HWSIM_PI_LOCK) {
            continue;
        }
        if (!measure(bank, i, time_us, &error)) {
            bank->engaged[i] = 0;
            continue;
        }
        if (bank->engaged[i]) {
            /* The zero of this PI cancels the ring's thermal pole, which leaves error[k+1] = ratio * error[k]. */
            pole = exp(-(double)bank->loop_ticks * bank->step_us / bank->tau_us[i]);
            gain = (1.0 - bank->loop_ratio) / (1.0 - pole);
            asked = bank->steady_mw[i] + bank->trim_mw[i] +
                    gain * (error - pole * bank->error_ghz[i]) / (bank->gain[i] * bank->calibration[i]);
            bank->trim_mw[i] = clamp(asked, 0.0, bank->limit_mw[i]) - bank->steady_mw[i];
        }
        bank->error_ghz[i] = error;
        bank->engaged[i] = 1;
    }
    hwsim_port_apply(bank, port, time_us);
}

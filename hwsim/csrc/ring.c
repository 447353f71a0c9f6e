/* Closed forms of one ring of a bank: ambient, resonance, responses, heat. They read a bank and change nothing. */
#include "bank_internal.h"

#include <math.h>

double hwsim_ambient_at(const hwsim_bank *bank, double time_us)
{
    return bank->ambient_k + bank->ramp_k_per_us * (time_us - bank->ambient_at_us);
}

double hwsim_resonance(const hwsim_bank *bank, int64_t ring, double time_us)
{
    return bank->cold_ghz[ring] - bank->drift[ring] * hwsim_ambient_at(bank, time_us) - bank->shift_ghz[ring];
}

double hwsim_detuning(const hwsim_bank *bank, int64_t ring, double time_us)
{
    const double offset = hwsim_resonance(bank, ring, time_us) - bank->line_ghz[ring];
    return offset - bank->fsr_ghz[ring] * nearbyint(offset / bank->fsr_ghz[ring]);
}

double hwsim_lorentz(double detuning_ghz, double fwhm_ghz)
{
    const double x = 2.0 * detuning_ghz / fwhm_ghz;
    return 1.0 / (1.0 + x * x);
}

double hwsim_through(double peak_drop, double lorentz)
{
    const double left = 1.0 - sqrt(peak_drop);
    return 1.0 - (1.0 - left * left) * lorentz;
}

double hwsim_neighbour_mw(const hwsim_bank *bank, const double *power_mw, int64_t ring)
{
    const int64_t first = ring - ring % bank->rings_per_port;
    const int64_t end = first + bank->rings_per_port;
    double sum = 0.0;
    for (int64_t d = 1; d <= bank->crosstalk_reach; d++) {
        const double left = ring - d >= first ? power_mw[ring - d] : 0.0;
        const double right = ring + d < end ? power_mw[ring + d] : 0.0;
        sum += bank->crosstalk[d - 1] * (left + right);
    }
    return sum;
}

int hwsim_reachable(const hwsim_bank *bank, int64_t ring)
{
    const double own = bank->gain[ring] * bank->calibration[ring] * bank->steady_mw[ring];
    const double others = bank->compensate ? bank->gain[ring] * bank->calibration[ring] *
                                                 hwsim_neighbour_mw(bank, bank->steady_mw, ring)
                                           : 0.0;
    return fabs(own + others - bank->wanted_ghz[ring]) <= bank->lock_ghz;
}

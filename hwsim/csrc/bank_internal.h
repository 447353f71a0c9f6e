/* Layout of a bank and the calls between its translation units. Not part of the contract in hwsim.h. */
#ifndef HWSIM_BANK_INTERNAL_H
#define HWSIM_BANK_INTERNAL_H

#include "hwsim.h"

struct hwsim_bank {
    int64_t rings, ports, rings_per_port;
    double step_us, lock_ghz, unlock_ghz, overdrive_gain;
    int64_t loop_ticks;
    double loop_ratio, dither_ghz, capture;
    int64_t crosstalk_reach;
    int compensate;

    int64_t tick;     /* whole steps since time 0 */
    double phase_us;  /* time since that tick, in [0, step_us) */
    double ambient_at_us, ambient_k, ramp_k_per_us;

    double *block; /* every array of double below, in one allocation */
    double *crosstalk;
    double *tau_us, *gain, *limit_mw, *fsr_ghz, *fwhm_ghz, *peak_drop, *drift, *cold_ghz, *calibration;
    double *decay;      /* exp(-step / tau) */
    double *shift_ghz;  /* state */
    double *drive_ghz;  /* where the shift is heading: gain * heat */
    double *goal_ghz;   /* shift + drift * ambient that puts the chosen order on the line */
    double *band_ghz;   /* unlock_ghz while locked, lock_ghz while not */
    double *since_us;   /* tick of locking; while unlocked, the next tick */
    double *line_ghz;
    double *wanted_ghz; /* shift the calibrated power aims at */
    double *steady_mw;  /* calibrated power */
    double *trim_mw;    /* what the lock loop has added to it */
    double *boost_mw, *boost_end_us;
    double *power_mw;   /* what the heater really gives */
    double *energy_nj;
    double *error_ghz;  /* last error the loop measured, valid while engaged */
    double *port_mark_us;      /* [ports] energy is counted up to here */
    double *port_next_end_us;  /* [ports] earliest boost_end_us, HUGE_VAL when none */
    uint8_t *bytes;            /* the arrays below */
    uint8_t *law, *fault, *lit, *tuned, *boosting, *engaged, *retuning;
    uint8_t *port_has_loop;    /* [ports] */
};

/* Each source calls only those above it here: ring.c, then control.c; bank.c and advance.c call both. */

/* ring.c: closed forms */

/* Return the ambient above its reference at time_us. [K] */
double hwsim_ambient_at(const hwsim_bank *bank, double time_us);

/* Return the resonance of one ring against the grid's centre at time_us; others lie whole FSRs away. [GHz] */
double hwsim_resonance(const hwsim_bank *bank, int64_t ring, double time_us);

/* Return the resonance nearest to the ring's line, less that line, at time_us: in [-fsr/2, fsr/2]. [GHz] */
double hwsim_detuning(const hwsim_bank *bank, int64_t ring, double time_us);

/* Return the drop-port response over its peak, 1 / (1 + (2 detuning / fwhm)^2). */
double hwsim_lorentz(double detuning_ghz, double fwhm_ghz);

/* Return the fraction that stays on the bus where the drop response over its peak is `lorentz`. Coupled-mode
 * theory of a ring with two equal couplers: with peak drop T, (1 - sqrt T)^2 is left at resonance. */
double hwsim_through(double peak_drop, double lorentz);

/* Return the sum over neighbours on the same port of c_d * power, for one ring. [mW] */
double hwsim_neighbour_mw(const hwsim_bank *bank, const double *power_mw, int64_t ring);

/* Return whether the calibrated powers put the ring within lock_ghz of the shift it aims at. */
int hwsim_reachable(const hwsim_bank *bank, int64_t ring);

/* control.c: powers */

/* Count the energy of a port up to time_us at its present powers. */
void hwsim_port_count_energy(hwsim_bank *bank, int64_t port, double time_us);

/* Recompute powers from commands and faults, and drives from powers, at time_us. */
void hwsim_port_apply(hwsim_bank *bank, int64_t port, double time_us);

/* Calibrated powers and over-drives of a port whose rings marked `retuning` have new lines. */
void hwsim_port_retune(hwsim_bank *bank, int64_t port, double time_us);

/* End the over-drives that are due. */
void hwsim_port_end_boosts(hwsim_bank *bank, int64_t port, double time_us);

/* One sample of the lock loop on every ring of a port that has one. */
void hwsim_port_loop(hwsim_bank *bank, int64_t port, double time_us);

#endif

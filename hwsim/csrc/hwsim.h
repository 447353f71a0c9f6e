/* hwsim: micro-ring resonators with heaters, stepped in time.
 *
 * A bank is `rings` rings in flat arrays. Rings [k * rings_per_port, (k + 1) * rings_per_port) stand side by side
 * on port k and warm each other; ports do not.
 *
 * Signs. A heater shifts a resonance to lower frequency ("red"). `shift` is that displacement in GHz, never
 * negative at rest. resonance = cold - shift - drift * ambient (+ any multiple of the free spectral range);
 * detuning = resonance - line: positive when the ring still wants heat.
 *
 * Model of one ring, with power P in mW and c_d the crosstalk from a ring d places away on the same port:
 *     tau dshift/dt = gain * (P_i + sum_d c_d (P_{i-d} + P_{i+d})) - shift
 * P changes only at instants (tune, end of an over-drive, a tick of the lock loop), so between two of them the
 * solution is an exponential, and that is what a step evaluates: no step size is unstable.
 *
 * Memory. hwsim_bank_new makes two allocations, which hwsim_bank_free releases. No other function allocates.
 * Arrays passed in are read during the call and never kept. Nothing prints; there are no globals.
 * Every function that returns int returns HWSIM_OK or a negative status, and then has changed nothing.
 */
#ifndef HWSIM_H
#define HWSIM_H

#include <stdint.h>

enum hwsim_status {
    HWSIM_OK = 0,
    HWSIM_E_NULL = -1,      /* a pointer that must be given is NULL */
    HWSIM_E_MEMORY = -2,    /* out of memory */
    HWSIM_E_SIZE = -3,      /* a count is out of range, or rings is not a multiple of rings_per_port */
    HWSIM_E_PARAMETER = -4, /* a physical parameter is not finite or out of range */
    HWSIM_E_RING = -5,      /* a ring index is outside [0, rings) */
    HWSIM_E_TIME = -6,      /* a duration is negative, not finite, or beyond 2^53 ticks */
    HWSIM_E_CODE = -7,      /* no such law, fault or field */
    HWSIM_E_UNTUNED = -8    /* the field needs a line, and a ring was never tuned */
};

/* How a ring reaches and holds its line. */
enum hwsim_law {
    HWSIM_OPEN_LOOP = 0,  /* one step to the calibrated power */
    HWSIM_OVER_DRIVE = 1, /* more (or less) than that power until the ring is there, then the calibrated power */
    HWSIM_PI_LOCK = 2     /* open-loop step, then a dithered proportional-integral loop */
};

enum hwsim_fault {
    HWSIM_HEALTHY = 0,
    HWSIM_DEAD_HEATER = 1, /* the heater gives no power whatever is asked */
    HWSIM_STUCK = 2        /* the heater keeps the power it had when the fault struck */
};

/* What hwsim_bank_read can copy out; one double per ring. */
enum hwsim_field {
    HWSIM_SHIFT_GHZ = 0,
    HWSIM_POWER_MW = 1,
    HWSIM_ENERGY_NJ = 2,
    HWSIM_RESONANCE_GHZ = 3,
    HWSIM_DETUNING_GHZ = 4, /* to the nearest order, in [-fsr/2, fsr/2] */
    HWSIM_DROP = 5,         /* fraction of the line's power at the drop port */
    HWSIM_THROUGH = 6,      /* fraction of the line's power that passes */
    HWSIM_LOCKED = 7,       /* 1.0 or 0.0 */
    HWSIM_SINCE_US = 8,     /* tick at which a locked ring locked; for others, the first tick at which it may */
    HWSIM_REACHABLE = 9     /* 1.0 when the calibrated power lies within the heater's range, else 0.0 */
};

typedef struct hwsim_config {
    int64_t rings;
    int64_t rings_per_port;
    double step_us;          /* one tick > 0 */
    double lock_ghz;         /* a ring locks when |detuning| <= lock_ghz at a tick ... */
    double unlock_ghz;       /* ... and unlocks when |detuning| > unlock_ghz > lock_ghz */
    double overdrive_gain;   /* > 1: commanded step over wanted step, before the heater's limits */
    int64_t loop_ticks;      /* ticks between two samples of the lock loop, >= 1 */
    double loop_ratio;       /* error left by the loop after one sample, in (0, 1) */
    double dither_ghz;       /* > 0: displacement to either side at which the loop measures */
    double capture;          /* in (0, 1): the loop is blind below this fraction of the peak drop */
    int64_t crosstalk_reach; /* >= 0, < rings_per_port */
    const double *crosstalk; /* [crosstalk_reach], each >= 0, 2 * sum < 1 */
    int compensate;          /* nonzero: the calibrated powers allow for crosstalk on the port */
} hwsim_config;

typedef struct hwsim_rings {        /* arrays of length rings */
    const double *tau_us;           /* > 0 */
    const double *gain_ghz_per_mw;  /* > 0 */
    const double *limit_mw;         /* > 0 */
    const double *fsr_ghz;          /* > 0 */
    const double *fwhm_ghz;         /* > 0, < fsr */
    const double *peak_drop;        /* in (0, 1] */
    const double *drift_ghz_per_k;  /* >= 0 */
    const double *cold_ghz;         /* resonance with the heater off at the reference ambient */
    const double *calibration;      /* > 0: gain the controller believes in, over the true gain */
    const uint8_t *law;             /* enum hwsim_law */
} hwsim_rings;

typedef struct hwsim_bank hwsim_bank;

/* Make a bank: heaters off, cold, no lines, ambient at its reference, time 0. The caller owns *bank. */
int hwsim_bank_new(const hwsim_config *config, const hwsim_rings *rings, hwsim_bank **bank);

/* Release a bank; NULL is allowed. */
void hwsim_bank_free(hwsim_bank *bank);

/* Give ring[k] the line line_ghz[k], for k in [0, n), now. Each takes the order of its resonance nearest to
 * where it stands among those its heater can hold; where none can be held the heater saturates. A ring listed
 * twice takes its last line. The other rings of a port keep theirs: their powers only make up for crosstalk. */
int hwsim_bank_tune(hwsim_bank *bank, int64_t n, const int64_t *ring, const double *line_ghz);

/* Advance every ring by dt_us >= 0. Locks and loops act at multiples of step_us since time 0. */
int hwsim_bank_advance(hwsim_bank *bank, double dt_us);

/* From now on the ambient is offset_k above its reference and rises by ramp_k_per_us. */
int hwsim_bank_set_ambient(hwsim_bank *bank, double offset_k, double ramp_k_per_us);

/* Break or mend one heater, now. */
int hwsim_bank_set_fault(hwsim_bank *bank, int64_t ring, int fault);

/* Say whether light of its line reaches a ring; without it a lock loop holds still. All are lit at first. */
int hwsim_bank_set_lit(hwsim_bank *bank, int64_t ring, int lit);

/* Time since the bank was made, and the ambient above its reference now; the bank must not be NULL. */
double hwsim_bank_time_us(const hwsim_bank *bank);
double hwsim_bank_ambient_k(const hwsim_bank *bank);

/* Copy one field into out[0 .. n); n must be the number of rings. */
int hwsim_bank_read(const hwsim_bank *bank, int field, double *out, int64_t n);

/* One line for a status; never NULL. */
const char *hwsim_strerror(int status);

#endif

"""Speed of hwsim on one core, beside numpy and the memory of the machine.

    python benchmarks/hwsim_stepping.py

Prints ring-steps per second for banks of 1e3, 1e5 and 655 360 rings (1024 GPUs x 320 wavelengths x Tx and
Rx): many steps in one call, one step a call, and one step a call in the numpy reference. The last column is
what the machine's memory would allow at one step a call, had every byte to come from it.
"""

import time

import numpy as np

from hwsim import RingBank, TeraPhy, retune, retune_time_us

SIZES = (1_000, 100_000, 655_360)
RINGS_PER_PORT = 8
#: Thirteen doubles: a step of one ring reads shift, drive, decay, goal, drift, band, since, power and energy,
#: and writes shift, band, since and energy.
BYTES_PER_RING_STEP = 8 * 13
REPEATS = 5


def best_seconds(run):
    """Least time of a few runs. [s]"""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def copy_bandwidth():
    """Bytes read and written each second by a copy far larger than any cache, as STREAM counts. [B/s]"""
    source = np.ones(32 * 2**20)
    target = np.empty_like(source)
    return 2 * source.nbytes / best_seconds(lambda: np.copyto(target, source))


def tuned_bank(rings, kernel):
    """A bank whose rings are all on their way to a line."""
    bank = RingBank(rings=rings, rings_per_port=RINGS_PER_PORT, kernel=kernel)
    bank.tune(np.arange(rings) % RINGS_PER_PORT)
    bank.advance(1.0)
    return bank


def steps_per_second(rings, *, kernel, steps, calls):
    """Ring-steps each second for `calls` calls of `steps` steps."""
    bank = tuned_bank(rings, kernel)

    def run():
        for _ in range(calls):
            bank.advance(float(steps))

    return rings * steps * calls / best_seconds(run)


def main():
    bandwidth = copy_bandwidth()
    print(f"memory copy: {bandwidth / 1e9:.1f} GB/s (read + write)\n")
    print("ring-steps per second, millions, one core")
    print("   rings   C, 100 steps a call   C, 1 step a call   numpy, 1 step a call   memory limit")
    for rings in SIZES:
        calls = max(1, 20_000_000 // (100 * rings))
        many = steps_per_second(rings, kernel="c", steps=100, calls=calls)
        one = steps_per_second(rings, kernel="c", steps=1, calls=max(2, 4_000_000 // rings))
        numpy = steps_per_second(rings, kernel="numpy", steps=1, calls=max(1, 1_000_000 // rings))
        print(
            f"{rings:8d} {many / 1e6:21.0f} {one / 1e6:18.0f} {numpy / 1e6:22.1f} "
            f"{bandwidth / BYTES_PER_RING_STEP / 1e6:14.0f}"
        )

    hops = np.arange(1, 9) * 200.0
    cold = best_seconds(lambda: (retune._cache.clear(), retune_time_us(hops)))
    warm = best_seconds(lambda: retune_time_us(np.resize(hops, 10_000)))
    print(
        f"\nretune_time_us: {cold * 1e3:.1f} ms to emulate 8 hops, {warm * 1e3:.1f} ms for 10 000 known ones"
    )

    port = TeraPhy()
    port.tune()
    seconds = best_seconds(lambda: port.advance(50.0))
    print(f"TeraPhy, 10 macros x 8 wavelengths: {seconds / 50.0 * 1e6:.0f} us of computing for each us")


if __name__ == "__main__":
    main()

"""`ring-fast` against the integer optimum by HiGHS."""

import numpy as np
import pytest
from sipml_ring import RingCircuits, plan

from sipml_core.model.traffic import TrafficMatrix


def instance(seed, gpus, wavelengths):
    """Random traffic within reach; sizes at most as given."""
    rng = np.random.default_rng(seed)
    gpus, wavelengths = int(rng.integers(2, gpus + 1)), int(rng.integers(2, wavelengths + 1))
    reach_hops = int(rng.choice([1, 2, 4, 8, 16]))
    demand = rng.lognormal(0, rng.choice([0.3, 1.0]), (gpus, gpus)) * (rng.random((gpus, gpus)) < 0.25)
    src, dst = np.nonzero(demand)
    control = RingCircuits.of(gpus, wavelengths, circuit_gbps=25.0, reach_hops=reach_hops)
    keep = control.may_connect(src, dst)
    src, dst = src[keep], dst[keep]
    traffic = TrafficMatrix.from_pairs(gpus, src, dst, demand[src, dst])
    return traffic, {"wavelengths": wavelengths, "reach_hops": reach_hops}


def fractions(seeds, wavelength, gpus, wavelengths):
    """Minimum of ring-fast over the optimum, where every pair is served.

    The limit of 60 s for each programme is there to end a solver gone astray: the slowest takes 0.7 s.
    """
    result = []
    for seed in seeds:
        traffic, ring = instance(seed, gpus, wavelengths)
        if traffic.pairs == 0:
            continue
        best = plan(traffic, algorithm="ring-ilp", wavelength=wavelength, **ring)
        assert best.proved
        if not len(best.unserved):
            fast = plan(traffic, wavelength=wavelength, **ring)
            result.append(fast.minimum_ratio / best.minimum_ratio)
    assert len(result) > 0.5 * len(seeds)
    return np.array(result)


@pytest.mark.parametrize(
    ("wavelength", "gpus", "wavelengths"),
    [("converted", 14, 24), ("continuous", 8, 8), ("continuous", 16, 40)],
)
def test_fast_plans_are_near_the_integer_optimum(wavelength, gpus, wavelengths):
    """At least 0.95 of it, and within 2 % on average."""
    found = fractions(range(150), wavelength, gpus, wavelengths)
    assert found.min() >= 0.95
    assert found.mean() >= 0.98


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wavelength", "gpus", "wavelengths"), [("converted", 16, 40), ("continuous", 16, 16)]
)
def test_fast_plans_are_near_the_integer_optimum_on_many_rings(wavelength, gpus, wavelengths):
    found = fractions(range(1000, 1500), wavelength, gpus, wavelengths)
    assert found.min() >= 0.95
    assert found.mean() >= 0.98


def test_where_no_pair_has_a_choice_conversion_is_exact():
    """N > 2 reach: t is feasible exactly if ceil(t demand) fits on every segment. The optimum by plain
    search over all breakpoints."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        src = np.repeat(np.arange(12), 3)
        dst = (src + rng.integers(1, 5, len(src))) % 12
        traffic = TrafficMatrix.from_pairs(12, src, dst, rng.uniform(0.2, 1, len(src)))
        made = plan(traffic, wavelengths=60, reach_hops=4, wavelength="converted")
        cover = ((np.arange(12)[:, None] - traffic.src) % 12) < (traffic.dst - traffic.src) % 12
        steps = np.unique(np.arange(1, 31)[:, None] / traffic.demand)
        fits = [t for t in steps if (cover @ np.ceil(t * traffic.demand - 1e-9)).max() <= 30]
        assert made.minimum_ratio == pytest.approx(25.0 * max(fits))

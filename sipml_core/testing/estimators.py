"""Laws of traffic estimators."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from sipml_core.model import CircuitControl, Fabric, Network, TaskGraph
from sipml_core.plugin import Estimator
from sipml_core.testing.jobs import transfers_only
from sipml_core.testing.laws import ComponentConformance, law, require

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True

#: Time between decisions. [us]
_INTERVAL_US = 50.0

#: What each circuit sent, and what waits for it, at one decision. [circuits] [bytes]
_Seen = tuple[NDArray[np.float64], NDArray[np.float64]]


class EstimatorConformance(ComponentConformance):
    """Laws of an estimator: set `estimator`, and its `options` if some are required."""

    estimator: ClassVar[type[Estimator]]
    #: Clusters that are tried: every pair of GPUs may have a circuit, and sends.
    sizes: ClassVar[tuple[int, ...]] = (2, 5)

    @property
    def component(self) -> type[Any]:
        return self.estimator

    def exercise(self, component: Any) -> None:
        network, tasks = _job(self.sizes[0])
        _forecasts(component, network, tasks, _run(network, tasks))

    def asked(self) -> Iterator[tuple[dict[str, Any], _Seen, NDArray[np.float64]]]:
        """What a run has seen at each of its decisions, and what the estimator makes of it."""
        for gpus in self.sizes:
            network, tasks = _job(gpus)
            seen = _run(network, tasks)
            for turn, forecast in enumerate(_forecasts(self.make(), network, tasks, seen)):
                yield {"gpus": gpus, "decision": turn}, seen[turn], forecast

    def test_a_forecast_is_a_size_for_each_circuit(self) -> None:
        for case, (sent, _), forecast in self.asked():
            with law("a forecast has finite bytes, not negative, for each circuit", **case):
                require(np.shape(forecast) == sent.shape, f"shape {np.shape(forecast)}, not {sent.shape}")
                require(np.isfinite(forecast).all() and (forecast >= 0).all(), f"{forecast}")

    def test_what_waits_is_expected(self) -> None:
        for case, (_, waiting), forecast in self.asked():
            with law("a circuit for which bytes wait is expected to be asked for", **case):
                forgotten = np.flatnonzero((waiting > 0) & (forecast <= 0))
                require(not len(forgotten), f"nothing for circuits {forgotten[:3].tolist()}")

    def test_the_same_run_gives_the_same_forecasts(self) -> None:
        for gpus in self.sizes:
            network, tasks = _job(gpus)
            seen = _run(network, tasks)
            component = self.make()
            with law("a forecast depends on its own run only", gpus=gpus):
                first, second = (_forecasts(component, network, tasks, seen) for _ in range(2))
                require(all(map(np.array_equal, first, second)), "two runs, two forecasts")

    def test_what_was_seen_is_left_as_it_is(self) -> None:
        for gpus in self.sizes:
            network, tasks = _job(gpus)
            seen = _run(network, tasks)
            with law("a forecast changes nothing that it is given", gpus=gpus):
                _forecasts(self.make(), network, tasks, seen)
                require(all(map(np.array_equal, _flat(seen), _flat(_run(network, tasks)))), "it did")


def _job(gpus: int) -> tuple[Network, TaskGraph]:
    """Every GPU sends to every other over a circuit of its own, between ports of 100 Gbps."""

    control = CircuitControl(gpus=gpus, circuit_gbps=25.0, circuits_per_gpu=4, interval_us=_INTERVAL_US)
    fabric = Fabric.with_ports(circuits=control, port_gbps=100.0)
    src, dst = np.nonzero(~np.eye(gpus, dtype=np.bool_))
    tasks = transfers_only(gpus, src, dst, 1e6 * (1 + np.arange(len(src))))
    return Network.of(fabric, tasks), tasks


def _run(network: Network, tasks: TaskGraph) -> list[_Seen]:
    """What is seen of a run whose first circuit never carries and whose others send a quarter a turn."""
    share = np.where(np.arange(len(network.circuit_src)) == 0, 0.0, 0.25)
    return [(tasks.size_bytes * share, tasks.size_bytes * (1 - turn * share)) for turn in range(1, 5)]


def _forecasts(
    component: Estimator, network: Network, tasks: TaskGraph, seen: list[_Seen]
) -> list[NDArray[np.float64]]:
    forecast = component.start(network, tasks)
    return [
        np.array(
            forecast(
                now_us=turn * _INTERVAL_US, interval_us=_INTERVAL_US, sent_bytes=sent, backlog_bytes=waiting
            )
        )
        for turn, (sent, waiting) in enumerate(seen, start=1)
    ]


def _flat(seen: list[_Seen]) -> list[NDArray[np.float64]]:
    return [array for pair in seen for array in pair]

"""From tasks and a network to a timeline: the event simulation, in C and as a Python reference.

In: a `TaskGraph`, a `Network`, a driver of circuits. Out: a `Timeline`.
Imports only `model`, `fields` and `errors`.
"""

from sipml_core.engine.bounds import lower_bound_us
from sipml_core.engine.kernel import AskedDemand
from sipml_core.engine.session import SAME_TIME, Recording
from sipml_core.engine.simulation import CircuitDriver, CircuitSettings, PhasedCircuitDriver, simulate

__all__ = [
    "SAME_TIME",
    "AskedDemand",
    "CircuitDriver",
    "CircuitSettings",
    "PhasedCircuitDriver",
    "Recording",
    "lower_bound_us",
    "simulate",
]

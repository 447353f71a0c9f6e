"""Plans are held to what exists, and what stays lit follows from two of them."""

import attrs
import numpy as np
import pytest

from sipml_core.errors import ConfigError, PluginError
from sipml_core.model.circuits import CircuitControl, CircuitPlan
from sipml_core.model.traffic import TrafficMatrix
from sipml_core.plugin import Scheduler
from sipml_core.scheduling import planned

CONTROL = CircuitControl(gpus=4, circuit_gbps=10.0, circuits_per_gpu=2, reconfiguration_us=7.0)


def plan(*circuits, gpus=4, **others):
    """From (src, dst, Gbps)."""
    src, dst, gbps = (list(column) for column in zip(*circuits, strict=True))
    return CircuitPlan(gpus=gpus, src=src, dst=dst, gbps=gbps, **others)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        (plan((0, 1, 30.0)), "3 circuits that start at GPU 0, which has 2"),
        (plan((0, 3, 10.0), (1, 3, 20.0)), "3 circuits that end at GPU 3, which has 2"),
        (plan((0, 1, 15.0)), "0->1: the capacity is no whole number of circuits of 10 Gbps"),
        (plan((1, 1, 10.0)), "1->1: no circuit can join them"),
        (plan((0, 2, 10.0), (0, 1, 10.0)), "0->1: pairs are out of order, or named twice"),
        (plan((0, 1, 10.0), (0, 1, 10.0)), "0->1: pairs are out of order, or named twice"),
        (plan((0, 4, 10.0)), "0->4: the GPUs are 0 to 3"),
        (plan((0, 1, -10.0)), "gbps is negative or not finite"),
        (plan((0, 1, np.nan)), "gbps is negative or not finite"),
        (plan((0, 1, 10.0), kept_gbps=[20.0]), "more is kept than planned"),
        (plan((0, 1, 10.0), dark_us=[-1.0]), "dark_us is negative"),
        (plan((0, 1, 10.0), kept_gbps=[]), "0 kept_gbps for 1 pairs"),
        (plan((0, 1, 10.0), gpus=5), "for 5 GPUs, the network has 4"),
    ],
)
def test_a_plan_that_cannot_exist_is_refused(made, told):
    with pytest.raises(PluginError, match=told):
        CONTROL.check(made)


def test_a_plan_that_fills_every_port_is_not():
    CONTROL.check(plan((0, 1, 20.0), (1, 0, 10.0), (1, 2, 10.0), (2, 0, 10.0), (3, 2, 10.0)))


def test_pairs_keep_what_they_had_and_what_they_gain_is_dark():
    """0->1 loses one of two circuits, 0->2 gains one, 1->2 is new, 2->3 stays, 3->0 is gone."""
    before = plan((0, 1, 20.0), (0, 2, 10.0), (2, 3, 10.0), (3, 0, 10.0))
    after = CONTROL.transition(before, plan((0, 1, 10.0), (0, 2, 20.0), (1, 2, 10.0), (2, 3, 10.0)))
    assert after.kept_gbps.tolist() == [10.0, 10.0, 0.0, 10.0]
    assert after.dark_us.tolist() == [0.0, 7.0, 7.0, 0.0]


def test_a_plan_that_says_so_itself_is_left_as_it_is():
    made = plan((0, 1, 20.0), kept_gbps=[0.0], dark_us=[3.0])
    assert CONTROL.transition(plan((0, 1, 20.0)), made) is made


class Fixed(Scheduler):
    """Always the same plan."""

    name = "fixed"
    summary = "always the same plan"
    made = plan((0, 1, 10.0))

    def plan(self, control, traffic, previous):
        return self.made


class Pods(CircuitControl):
    """No circuit between the first two GPUs and the last two."""

    def check(self, plan):
        super().check(plan)
        if (plan.src // 2 != plan.dst // 2).any():
            raise PluginError("a circuit leaves its pod")


@attrs.frozen(kw_only=True, eq=False)
class Painted(CircuitControl):
    """One more field, no more rules."""

    colour: str = "green"


def ask(control, made=Fixed.made, plans=CircuitControl):
    scheduler = type("Planner", (Fixed,), {"made": made, "plans": plans})
    traffic = TrafficMatrix.from_pairs(4, [0], [1], [1.0])
    return planned(scheduler(Fixed.Options()), control, traffic, None)


def test_a_scheduler_is_asked_only_where_it_knows_the_rules():
    """Pods has a rule of its own, Painted none; one who plans Pods cannot plan what is none."""
    few = {"gpus": 4, "circuit_gbps": 10.0, "circuits_per_gpu": 2}
    assert ask(Painted(**few)).gbps.tolist() == [10.0]
    assert ask(Pods(**few), plans=Pods).gbps.tolist() == [10.0]
    with pytest.raises(ConfigError, match="scheduler 'fixed' plans CircuitControl, not Pods"):
        ask(Pods(**few))
    with pytest.raises(ConfigError, match="scheduler 'fixed' plans Pods, not CircuitControl"):
        ask(CONTROL, plans=Pods)


def test_every_plan_is_checked_whoever_made_it():
    few = {"gpus": 4, "circuit_gbps": 10.0, "circuits_per_gpu": 2}
    with pytest.raises(PluginError, match="scheduler 'fixed': a circuit leaves its pod"):
        ask(Pods(**few), plan((0, 2, 10.0)), plans=Pods)
    with pytest.raises(PluginError, match="scheduler 'fixed': the plan has 3 circuits that start at GPU 0"):
        ask(CONTROL, plan((0, 2, 30.0)))
    with pytest.raises(PluginError, match="scheduler 'fixed' returned a NoneType, not a CircuitPlan"):
        ask(CONTROL, None)

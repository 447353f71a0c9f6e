"""Suites of exchanges and all-reduces: what the core offers passes, and wrong ones are found."""

import numpy as np
import pytest

from sipml_core.collectives import ALL_REDUCES, EXCHANGES, Chain, Direct, Flat, TorusRings, TwoTier
from sipml_core.testing import AllReduceConformance, ExchangeConformance, LawBroken

LAWS = {
    suite: [name for name in dir(suite) if name.startswith("test_")]
    for suite in (ExchangeConformance, AllReduceConformance)
}


def broken(suite, **attributes):
    """Names of the laws that break."""
    tried, found = type("Suite", (suite,), attributes)(), []
    for name in LAWS[suite]:
        try:
            getattr(tried, name)()
        except LawBroken:
            found.append(name)
    return found


@pytest.mark.parametrize("exchange", EXCHANGES)
def test_exchanges_of_the_core_pass(exchange):
    assert broken(ExchangeConformance, exchange=exchange) == []


@pytest.mark.parametrize("all_reduce", ALL_REDUCES)
def test_all_reduces_of_the_core_pass(all_reduce):
    assert broken(AllReduceConformance, all_reduce=all_reduce) == []


class Circular(Direct):
    name = "circular"

    def parents(self, shape):
        root, device = np.indices((shape.devices, shape.devices))
        return np.where(root == device, root, (device + 1) % shape.devices + (device + 1 == root))


class Short(Direct):
    name = "short"

    def parents(self, shape):
        return super().parents(shape)[:-1]


class Outside(Direct):
    name = "outside"

    def parents(self, shape):
        return super().parents(shape) + shape.devices


class Promised(Chain):
    name = "promised"

    def parents(self, shape):
        from sipml_core.errors import InfeasibleError

        raise InfeasibleError("never")


@pytest.mark.parametrize("exchange", [Circular, Short, Outside, Promised])
def test_wrong_exchanges_are_found(exchange):
    assert broken(ExchangeConformance, exchange=exchange)


class Lost(Flat):
    name = "lost"

    def tiers(self, shape):
        return (max(shape.replicas - 1, 1),)


class Overpromised(TwoTier):
    name = "overpromised"

    def offered(self, shape):
        return True


class Halved(Flat):
    name = "halved"

    def rings(self, shape):
        return ((tuple(range(shape.replicas)), 0.5),)


class Twice(TorusRings):
    name = "twice"

    def orders(self, shape):
        return (((0,) * len(shape.torus), 1, 1.0),)


class OneWay(TorusRings):
    name = "one-way"

    def orders(self, shape):
        return super().orders(shape)[::2]


@pytest.mark.parametrize("all_reduce", [Lost, Overpromised, Halved, Twice, OneWay])
def test_wrong_all_reduces_are_found(all_reduce):
    assert broken(AllReduceConformance, all_reduce=all_reduce)

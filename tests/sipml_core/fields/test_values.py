"""`frozen` makes what `attrs.frozen` makes: the same text, the same equality, a hash that follows it."""

import math
from typing import Any

import attrs
import pytest

from sipml_core.fields import frozen


def classes(make: Any) -> tuple[type[Any], type[Any]]:
    """A class, and one that derives from it, made by `make`."""

    @make(kw_only=True)
    class Link:
        gbps: float
        ends: tuple[int, ...] = (0, 1)
        #: Not compared, not hashed, not shown.
        note: str = attrs.field(default="", eq=False, repr=False)
        #: Compared, not hashed.
        lanes: dict[str, int] = attrs.field(factory=dict, hash=False)
        #: Shown in its own way.
        route: Any = attrs.field(default=None, repr=lambda route: f"<{route}>")

    @make(kw_only=True)
    class Circuit(Link):
        dark_us: float = 0.0

    return Link, Circuit


OURS, THEIRS = classes(frozen), classes(attrs.frozen)

#: Values of Link, of which several are equal.
VALUES = [
    {"gbps": 400},
    {"gbps": 400.0, "note": "the same"},
    {"gbps": 800, "route": "a"},
    {"gbps": 800, "route": "b"},
    {"gbps": 400, "lanes": {"x": 1}},
    {"gbps": math.nan},
]


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("value", VALUES)
def test_is_shown_as_attrs_shows_it(kind, value):
    assert repr(OURS[kind](**value)) == repr(THEIRS[kind](**value)).replace("attrs.frozen", "frozen")


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize("one", VALUES)
@pytest.mark.parametrize("other", VALUES)
def test_is_equal_where_attrs_says_so_and_then_has_the_same_hash(kind, one, other):
    """NaN is equal to nothing; what is not compared makes no difference."""
    ours = OURS[kind](**one), OURS[kind](**other)
    assert (ours[0] == ours[1]) is (THEIRS[kind](**one) == THEIRS[kind](**other))
    assert (ours[0] != ours[1]) is (THEIRS[kind](**one) != THEIRS[kind](**other))
    if ours[0] == ours[1]:
        assert hash(ours[0]) == hash(ours[1])


def test_classes_are_told_apart():
    """A value of a derived class is not equal to one of its base, nor to anything else."""
    assert OURS[0](gbps=400) != OURS[1](gbps=400)
    assert OURS[0](gbps=400) != 400


def test_what_is_not_hashed_may_be_a_list_of_things_that_cannot_be():
    assert hash(OURS[0](gbps=400, lanes={"x": 1})) == hash(OURS[0](gbps=400, lanes={"x": 2}))
    with pytest.raises(TypeError, match="unhashable"):
        hash(OURS[0](gbps=[400]))


def test_a_class_without_equality_is_equal_by_identity():
    @frozen(eq=False)
    class Graph:
        name: str

    graph = Graph("g")
    assert graph == graph
    assert graph != Graph("g")
    assert len({graph, Graph("g")}) == 2


def test_what_a_class_defines_itself_stays():
    @frozen
    class Named:
        name: str
        size: int = 0

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Named) and other.name == self.name

        def __hash__(self) -> int:
            return hash(self.name)

        def __repr__(self) -> str:
            return f"<{self.name}>"

    assert Named("a", 1) == Named("a", 2)
    assert hash(Named("a", 1)) == hash(Named("a", 2))
    assert repr(Named("a")) == "<a>"


def test_a_value_that_holds_itself_is_shown():
    @frozen
    class Holder:
        inside: list[Any]

    holder = Holder([])
    holder.inside.append(holder)
    assert "Holder(inside=[...])" in repr(holder)


def test_is_frozen_and_can_be_evolved():
    link = OURS[0](gbps=400)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        link.gbps = 800
    assert attrs.evolve(link, gbps=800) == OURS[0](gbps=800)


def test_options_that_would_change_what_is_shared_are_refused():
    with pytest.raises(TypeError, match="knows kw_only and eq, not cache_hash"):
        frozen(type("Cached", (), {}), cache_hash=True)


def test_a_hash_of_ones_own_stays():
    def made(make: Any) -> Any:
        @make
        class Odd:
            number: int

            def __hash__(self) -> int:
                return 7

        return Odd

    ours, theirs = made(frozen), made(attrs.frozen)
    assert hash(ours(1)) == hash(theirs(1)) == 7
    assert ours(1) == ours(1) != ours(2)

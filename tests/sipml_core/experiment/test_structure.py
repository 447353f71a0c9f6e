import attrs
import pytest

from sipml_core.errors import ConfigError
from sipml_core.experiment.structure import structure
from sipml_core.fields.checks import at_least, between, one_of, positive
from sipml_core.fields.options import option
from sipml_core.fields.units import parse_gbps


@attrs.frozen(kw_only=True)
class Model:
    reach_hops: int = option(16, doc="", validator=at_least(1))
    gbps: float = option(1.0, doc="", converter=parse_gbps, validator=positive)
    share: float = option(0.5, doc="", validator=between(0, 1))
    rule: str = option("fair", doc="", validator=one_of("fair", "bound"))
    sizes: tuple[int, ...] = option((), doc="")
    names: tuple[str, ...] = option((), doc="")
    maybe: int | None = option(None, doc="")
    dark: bool = option(False, doc="")


@attrs.frozen(kw_only=True)
class Required:
    gpus: int = option(doc="")


def test_values_arrive_converted():
    """Integers serve as floats, texts with units as numbers, lists as tuples."""
    model = structure({"gbps": "2 Tbps", "share": 1, "sizes": [1, 2], "maybe": 3, "dark": True}, Model, "t")
    assert (model.gbps, model.share, model.sizes, model.maybe, model.dark) == (2000.0, 1.0, (1, 2), 3, True)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"reach_hops": 0}, "topology.reach_hops must be at least 1, got 0"),
        ({"reach_hops": 1.5}, "topology.reach_hops must be an integer, got 1.5"),
        ({"reach_hops": "8"}, "topology.reach_hops must be an integer, got '8'"),
        ({"reach_hops": True}, "topology.reach_hops must be an integer, got True"),
        ({"gbps": 0}, "topology.gbps must be positive, got 0.0"),
        ({"gbps": -1}, "topology.gbps must be positive, got -1.0"),
        ({"gbps": "fast"}, "topology.gbps must be a bandwidth"),
        ({"share": 2.0}, "topology.share must be from 0 to 1, got 2.0"),
        ({"share": float("nan")}, "topology.share must be from 0 to 1, got nan"),
        ({"rule": "fairr"}, "must be one of fair, bound, got 'fairr'; did you mean 'fair'?"),
        ({"sizes": 3}, "topology.sizes must be a list, got 3"),
        ({"sizes": [1, "x"]}, "topology.sizes[1] must be an integer, got 'x'"),
        ({"names": "abc"}, "topology.names must be a list, got 'abc'"),
        ({"maybe": "x"}, "topology.maybe must be an integer, got 'x'"),
        ({"dark": 1}, "topology.dark must be true or false, got 1"),
        ({"reach_hop": 1}, "topology.reach_hop is not a known key; did you mean 'reach_hops'?"),
        (7, "topology must be a table, got 7"),
    ],
)
def test_a_refusal_names_path_value_and_what_is_allowed(table, message):
    with pytest.raises(ConfigError) as refusal:
        structure(table, Model, "topology")
    assert message in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_a_missing_key_is_named():
    with pytest.raises(ConfigError, match=r"^cluster\.gpus is required$"):
        structure({}, Required, "cluster")

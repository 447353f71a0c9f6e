"""Pairs as numbers: there and back, in the order of (src, dst)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sipml_core.errors import ConfigError
from sipml_core.model.pairs import PairIndex, sorted_unique
from sipml_core.model.prices import Prices

PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=30)


@given(PAIRS)
def test_keys_are_ordered_as_pairs_are_and_lead_back_to_them(pairs):
    src, dst = np.array(pairs, dtype=np.int32).reshape(-1, 2).T
    keys, row = PairIndex(7).unique(src, dst)
    ends = list(zip(*(end.tolist() for end in PairIndex(7).ends(keys)), strict=True))
    assert ends == sorted(set(pairs))
    assert [ends[at] for at in row] == pairs


def test_keys_of_many_gpus_do_not_overflow():
    """100 000 GPUs have 10^10 pairs, more than 32 bits count."""
    last = np.array([99_999], dtype=np.int32)
    assert PairIndex(100_000).key(last, last).tolist() == [10**10 - 1]


@given(st.lists(st.integers(-5, 5), max_size=30))
def test_sorted_unique_keeps_each_value_once_in_order(values):
    assert sorted_unique(np.array(values, dtype=np.int64)).tolist() == sorted(set(values))


@pytest.mark.parametrize("gbps", [0.0, -1.0, float("nan"), float("inf")])
def test_prices_are_positive(gbps):
    with pytest.raises(ConfigError, match="group_gbps"):
        Prices(group_gbps=gbps, replica_gbps=1.0)

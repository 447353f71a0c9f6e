"""Checks of numbers: what is refused, and how it is shown."""

import attrs
import numpy as np
import pytest

from sipml_core.errors import ConfigError, shown
from sipml_core.fields import at_least, between, positive


def refusal(check, value):
    field = attrs.make_class("Field", {"size": attrs.field(validator=check)})
    with pytest.raises(ConfigError) as caught:
        field(value)
    return str(caught.value)


@pytest.mark.parametrize("check", [at_least(1), between(1, 65536), positive])
@pytest.mark.parametrize(
    "value", [10**400, 10**5000, -(10**5000), float("nan"), float("inf"), True, "3"], ids=lambda _: "value"
)
def test_what_is_no_size_is_refused_in_one_short_line(check, value):
    """Integers of 401 digits are no float, those of 5001 digits no text; the name of the key stays."""
    message = refusal(check, value)
    assert message.startswith("size must be ")
    assert len(message) < 200
    assert "\n" not in message


def test_bounds_are_written_out():
    assert (
        refusal(between(1, 16_777_216), 2**63) == "size must be from 1 to 16777216, got 9223372036854775808"
    )
    assert refusal(between(0, 1), 1.5) == "size must be from 0 to 1, got 1.5"


@pytest.mark.parametrize("value", [1e-320, 1e-13, 1e31, 1e308])
def test_a_positive_number_stays_where_its_inverse_is_finite(value):
    """1 / 1e-320 is infinite: a GPU of that bandwidth would never end a kernel."""
    assert refusal(positive, value).startswith("size must be from 1e-12 to 1e+30, got")


def test_what_is_counted_is_at_most_what_64_bits_hold():
    assert refusal(at_least(1), 2**63) == (
        "size must be at most 9223372036854775807, got 9223372036854775808"
    )


@pytest.mark.parametrize("value", [1, 65536, np.int64(7), 2.0])
def test_sizes_pass(value):
    attrs.make_class("Field", {"size": attrs.field(validator=between(1, 65536))})(value)


def test_values_are_shown_short():
    """3000 letters are cut to 80 with both ends; digits that Python does not write are counted."""
    long = shown("a" * 1500 + "b" * 1500)
    assert len(long) == 80
    assert long.startswith("'aaa")
    assert long.endswith("bbb'")
    assert shown(10**5000) == "an integer of about 5001 digits"
    assert shown("two\nlines") == "'two\\nlines'"

"""What commands share: values of options."""

import pytest

from sipml_core.cli.asking import bandwidth_of
from sipml_core.errors import ConfigError


def test_a_bandwidth_is_in_gbps():
    assert bandwidth_of("450 GB/s") == 3600


@pytest.mark.parametrize(
    ("text", "told"),
    [("fast", "--bandwidth must be a bandwidth"), ("-4 GB/s", "--bandwidth must be positive, got")],
)
def test_what_is_no_bandwidth_is_refused_with_the_option(text, told):
    with pytest.raises(ConfigError, match=told):
        bandwidth_of(text)

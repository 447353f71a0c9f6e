"""TOML that is none, or that Python's parser gives up on."""

import pytest

from sipml_core.errors import ConfigError
from sipml_core.fields import read_toml


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "it is nested more than 20 deep"),
        ("a = " + "[" * 21 + "]" * 21, "it is nested more than 20 deep"),
        ("a" + ".a" * 5000 + " = 1", "it is nested more than 20 deep"),
        ("a = " + "1" * 5001, "an integer has more than 4300 digits"),
        ("a = \n", "Invalid value"),
    ],
)
def test_what_is_no_toml_is_refused_in_one_line(tmp_path, text, reason):
    path = tmp_path / "x.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as refusal:
        read_toml(path)
    assert str(refusal.value).startswith(f"{path} is not TOML: {reason}")
    assert "\n" not in str(refusal.value)


def test_twenty_levels_are_read(tmp_path):
    """19 lists in a table are 20 levels."""
    path = tmp_path / "x.toml"
    path.write_text("a = " + "[" * 19 + "1" + "]" * 19)
    assert list(read_toml(path)) == ["a"]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path, name):
    with pytest.raises(ConfigError, match="key: "):
        read_toml(tmp_path / name, "key")

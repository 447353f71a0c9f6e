import numpy as np
import pytest

from sipml_core.errors import ConfigError
from sipml_core.scheduling.matrix import read_matrix


def test_csv_and_npy_give_the_same_matrix(tmp_path):
    """Row = sender; zeros are no demand."""
    dense = np.array([[0, 1.5, 0], [0, 0, 2], [3, 0, 0]])
    np.save(tmp_path / "tm.npy", dense)
    (tmp_path / "tm.csv").write_text("0,1.5,0\n0,0,2\n\n3,0,0\n")
    for name in ("tm.npy", "tm.csv"):
        traffic = read_matrix(tmp_path / name)
        assert traffic.gpus == 3
        entries = list(zip(traffic.src, traffic.dst, traffic.demand, strict=True))
        assert entries == [(0, 1, 1.5), (1, 2, 2), (2, 0, 3)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,-1\n1,0\n", r"traffic\[0, 1\] must be finite and not negative, got -1.0"),
        ("0,nan\n1,0\n", r"traffic\[0, 1\] must be finite and not negative, got nan"),
        ("0,1\n1,0\n2,2\n", "must be square, got 3 lines of 2 numbers"),
        ("0,1\n1\n", "must be square, got 2 lines of 1 or 2 numbers"),
        ("", "must be square, got 0 lines"),
        ("0,x\n1,0\n", "line 1: 'x' is not a number"),
        ("1,0\n0,0\n", r"traffic\[0, 0\] is on the diagonal"),
    ],
)
def test_what_is_no_traffic_matrix_is_refused(tmp_path, text, message):
    path = tmp_path / "tm.csv"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_matrix(path)


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(ConfigError, match=r"cannot read .*none\.csv"):
        read_matrix(tmp_path / "none.csv")
    (tmp_path / "bad.npy").write_bytes(b"not numpy")
    with pytest.raises(ConfigError, match="no array of numbers"):
        read_matrix(tmp_path / "bad.npy")

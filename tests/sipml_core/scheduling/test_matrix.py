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
        ("", "is empty: it must have a line of N numbers"),
        ("0,5e-324\n1,0\n", r"traffic\[0, 1\] must be 0, or from 1e-200 to 1e\+200, got 4.94066e-324"),
        ("0,1\n1e300,0\n", r"traffic\[1, 0\] must be 0, or from 1e-200 to 1e\+200, got 1e\+300"),
        ("0," + "x" * 3000 + "\n1,0\n", "line 1: 'xxx"),
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


DENSE = np.array([[0, 1.5, 0], [0, 0, 2], [3, 0, 0]])
#: The same matrix as scipy.sparse.save_npz writes it, in three forms.
SPARSE = {
    "csr": {"indices": [1, 2, 0], "indptr": [0, 1, 2, 3], "data": [1.5, 2, 3]},
    "csc": {"indices": [2, 0, 1], "indptr": [0, 1, 2, 3], "data": [3, 1.5, 2]},
    "coo": {"row": [2, 0, 1], "col": [0, 1, 2], "data": [3, 1.5, 2]},
}


def saved(path, kind="csr", **changes):
    arrays = {"format": kind.encode(), "shape": [3, 3], **SPARSE.get(kind, SPARSE["csr"]), **changes}
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize("kind", SPARSE)
def test_a_sparse_matrix_is_read_without_scipy(tmp_path, kind):
    """Row 0 sends 1.5 to 1, row 1 sends 2 to 2, row 2 sends 3 to 0."""
    assert read_matrix(saved(tmp_path / "tm.npz", kind)).dense().tolist() == DENSE.tolist()


def test_a_large_sparse_matrix_is_never_made_dense(tmp_path):
    """65536 x 65536 float64 are 34 GB."""
    sparse = {"indices": [65535], "indptr": [0, *[1] * 65536], "data": [7.0], "shape": [65536, 65536]}
    traffic = read_matrix(saved(tmp_path / "tm.npz", **sparse))
    assert (traffic.gpus, traffic.src.tolist(), traffic.dst.tolist()) == (65536, [0], [65535])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "bsr"}, "must be a sparse matrix in csr, csc or coo form"),
        ({"shape": [3, 4]}, r"must be square, got shape \(3, 4\)"),
        ({"shape": [0, 0]}, "must have a row for each of 1 to 65536 GPUs, got 0 x 0"),
        ({"shape": [10**9, 10**9]}, "must have a row for each of 1 to 65536 GPUs"),
        ({"shape": [3.0, 3.0]}, "is damaged: its indices are of type float64"),
        ({"indices": [1, 2, 3]}, r"traffic pair \(2, 3\) is outside 0..2"),
        ({"indices": [1, 2, -1]}, r"traffic pair \(2, -1\) is outside 0..2"),
        ({"indices": [1, 2]}, "is damaged: 3 entries in 3 places of rows and 2 of columns"),
        ({"indptr": [0, 2, 1, 3]}, "is damaged: its indptr"),
        ({"indptr": [0, 3]}, "is damaged: its indptr"),
        ({"data": [1, 2, 3j]}, "must hold real numbers, got complex128"),
        ({"data": [1, 2, -3]}, r"traffic\[2, 0\] must be finite and not negative, got -3.0"),
    ],
)
def test_a_sparse_file_that_is_none_is_refused(tmp_path, changes, message):
    with pytest.raises(ConfigError, match=message):
        read_matrix(saved(tmp_path / "tm.npz", **changes))


def test_a_npz_of_dense_arrays_is_refused(tmp_path):
    np.savez(tmp_path / "tm.npz", traffic=DENSE)
    with pytest.raises(ConfigError, match=r"got arrays traffic of form None; a dense one belongs in \.npy"):
        read_matrix(tmp_path / "tm.npz")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (DENSE + 1j, "must hold real numbers, got complex128"),
        (DENSE.astype("datetime64[s]"), "must hold real numbers, got datetime64"),
        (DENSE.astype(bool), "must hold real numbers, got bool"),
        (DENSE.astype(str), "must hold real numbers, got <U"),
        (np.zeros((3, 3), dtype=[("a", float), ("b", float)]), "must hold real numbers, got "),
        (DENSE.astype(object), "is no array of numbers"),
        (np.zeros((0, 0)), "must have a row for each of 1 to 65536 GPUs, got 0 x 0"),
        (np.zeros(3), r"must be square, got shape \(3,\)"),
        (np.array([[0, np.longdouble("1e4000")], [1, 0]]), r"traffic\[0, 1\] must be finite"),
    ],
)
def test_arrays_of_something_else_are_refused(tmp_path, array, message):
    np.save(tmp_path / "tm.NPY", array)
    (tmp_path / "tm.NPY.npy").rename(tmp_path / "tm.NPY")
    with pytest.raises(ConfigError, match=message):
        read_matrix(tmp_path / "tm.NPY")


@pytest.mark.parametrize("keep", [10, 60, 200])
def test_a_file_cut_short_is_refused_in_one_line(tmp_path, keep):
    path = saved(tmp_path / "tm.npz")
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ConfigError) as refusal:
        read_matrix(path)
    assert "\n" not in str(refusal.value)

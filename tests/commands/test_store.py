"""The command that looks at the results kept, and removes them."""

from click.testing import CliRunner

from sipml_core.cli.main import main
from sipml_core.store import Record, ResultStore


def test_store_counts_and_clears(tmp_path):
    """Two results; afterwards there are none, and the folder may be missing."""
    results = ResultStore(tmp_path)
    results.put("ab12" + "0" * 60, Record(kind="estimate", answer={"a": 1}))
    results.put("cd34" + "0" * 60, Record(kind="simulation", answer={"infeasible": "no"}))
    size = sum(path.stat().st_size for path in results.files())
    run = CliRunner().invoke
    assert run(main, ["store", "--store", str(tmp_path)]).output == (
        f"{tmp_path}: 2 results, {size} B: 1 estimates, 1 simulations; 1 of them say why there is none\n"
    )
    cleared = run(main, ["store", "--store", str(tmp_path), "--clear"])
    assert cleared.output == f"{tmp_path}: removed 2 files, {size} B\n{tmp_path}: 0 results, 0 B\n"
    assert results.get("ab12" + "0" * 60) is None
    missing = tmp_path / "missing"
    assert run(main, ["store", "--store", str(missing)]).output == f"{missing}: 0 results, 0 B\n"


def test_files_that_no_longer_count_are_told(tmp_path):
    (tmp_path / "ab").mkdir()
    (tmp_path / "ab" / f"{12:062d}.json").write_text('{"iteration_us": 1.0}')
    answer = CliRunner().invoke(main, ["store", "--store", str(tmp_path)]).output
    assert "1 files are of an older format, or damaged: they count as none" in answer


def test_a_size_that_is_none_is_refused(tmp_path):
    answer = CliRunner().invoke(main, ["store", "--store", str(tmp_path), "--down-to", "-1 GB"])
    assert answer.exit_code == 2
    assert answer.stderr == "sipml: --down-to must be at least 0 B, got '-1 GB'\n"
    answer = CliRunner().invoke(main, ["store", "--store", str(tmp_path), "--down-to", "small"])
    assert answer.exit_code == 2
    assert answer.stderr.startswith("sipml: --down-to must be")

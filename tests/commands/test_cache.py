"""The command that looks at the answers kept, and clears them."""

from click.testing import CliRunner

from sipml_core.cli.main import main
from sipml_core.searching import AnswerCache


def test_cache_counts_and_clears(tmp_path):
    """Two answers of 8 and 9 letters in JSON; afterwards there are none, and the folder may be missing."""
    answers = AnswerCache(tmp_path)
    answers.put("ab12", {"a": 1})
    answers.put("cd34", {"b": 22})
    run = CliRunner().invoke
    assert run(main, ["cache", "--cache", str(tmp_path)]).output == f"{tmp_path}: 2 answers, 17 B\n"
    cleared = run(main, ["cache", "--cache", str(tmp_path), "--clear"])
    assert cleared.output == f"{tmp_path}: 2 answers, 17 B, removed\n"
    assert answers.get("ab12") is None
    missing = tmp_path / "missing"
    assert run(main, ["cache", "--cache", str(missing)]).output == f"{missing}: 0 answers, 0 B\n"

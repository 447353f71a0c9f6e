"""The study of blocks and fragments: settings, claims and files."""

import csv

import attrs
import pytest

from sipml_core.errors import ConfigError
from sipml_core.executing import InThisProcess
from sipml_core.report import fragmentation_tables, write_fragmentation
from sipml_core.sharing import SettingRow, fragmentation_study, verdicts_on_sharing
from sipml_core.sharing import fragmentation as fragmentation_module
from sipml_core.sharing.fragmentation import SharingClaim, carry_out_fragmentation, setting_rows
from sipml_core.sharing.sharedresult import NetworkSummary

pytestmark = pytest.mark.interconnects

GPT = {"name": "gpt", "layers": 1, "hidden": 64, "heads": 4, "vocabulary": 128, "sequence": 32}


def summary(topology, waited_us, slowdown):
    return NetworkSummary(
        topology=topology, makespan_us=1e6, utilisation=0.5, fragmentation=0.25, waited_us=waited_us,
        slowdown=slowdown, slowest=2.0, infeasible=0, simulated_together=3,
    )  # fmt: skip


ROWS = [
    SettingRow(setting="blocks", summary=summary("ring", 300.0, 1.0)),
    SettingRow(setting="fragments", summary=summary("ring", 100.0, 1.2)),
    SettingRow(setting="fragments", summary=summary("switch", 0.0, 1.0)),
]


@pytest.mark.parametrize(
    ("column", "over", "under", "limits", "ratio", "verdict"),
    [
        ("waited_us", "blocks ring", "fragments ring", {"at_least": 2}, 3.0, "holds"),
        ("waited_us", "blocks ring", "fragments ring", {"at_most": 2}, 3.0, "differs: 3, at most 2 expected"),
        ("slowdown", "fragments ring", "blocks ring", {"at_least": 1.5}, 1.2, "differs: 1.2, at least 1.5"),
        ("waited_us", "blocks ring", "fragments switch", {"at_least": 1}, None, "nothing to compare with"),
    ],
)
def test_a_claim_is_the_ratio_of_one_setting_to_another(column, over, under, limits, ratio, verdict):
    claim = SharingClaim(
        text="t", column=column, over=tuple(over.split()), under=tuple(under.split()), **limits
    )
    (found,) = verdicts_on_sharing([claim], ROWS)
    assert found.ratio == (None if ratio is None else pytest.approx(ratio))
    assert found.verdict.startswith(verdict)


def test_a_claim_about_what_was_not_run_is_refused():
    claim = SharingClaim(text="t", column="slowdown", over=("blocks", "tree"), under=("blocks", "ring"))
    with pytest.raises(ConfigError, match="'blocks' on 'tree', which was not run"):
        verdicts_on_sharing([claim], ROWS)


def test_the_claims_of_the_study_are_about_its_settings_and_networks():
    study = fragmentation_study()
    settings = {setting.label for setting in study.setting}
    networks = {table.get("label", table["name"]) for table in study.experiment["topology"]}
    for claim in study.claim:
        for setting, network in (claim.over, claim.under):
            assert setting in settings
            assert network in networks
        assert hasattr(ROWS[0].summary, claim.column)


def test_every_setting_is_run_with_its_allocator(registry, monkeypatch):
    """Four jobs of 2 and 4 GPUs on 32: blocks in a row, or GPUs drawn at random."""
    study = fragmentation_study()
    small = {
        **study.experiment,
        "topology": [{"name": "elect-flat"}],
        "workload": [
            {"name": "gpt", "layers": 1, "hidden": 64, "heads": 4, "vocabulary": 128, "sequence": 32}
        ],
        "plan": {"global_batch": 48},
    }
    study = attrs.evolve(study, experiment=small, setting=(study.setting[0], study.setting[-1]))
    monkeypatch.setattr(fragmentation_module, "fragmentation_study", lambda: study)
    rows = carry_out_fragmentation(InThisProcess(), True)
    assert [row.setting for row in rows] == ["contiguous", "random"]
    assert rows[0].summary.fragmentation < rows[1].summary.fragmentation
    assert rows[1] == setting_rows(study, study.setting[1], registry, True)[0]


def test_rows_and_verdicts_are_written(tmp_path):
    claim = SharingClaim(text="t", column="waited_us", over=("blocks", "ring"), under=("fragments", "ring"))
    verdicts = verdicts_on_sharing([claim], ROWS)
    files = write_fragmentation(ROWS, verdicts, tmp_path, picture=False)
    assert [file.name for file in files] == ["fragmentation.csv", "fragmentation_claims.csv"]
    written = list(csv.DictReader(files[0].read_text().splitlines()))
    assert [row["setting"] for row in written] == ["blocks", "fragments", "fragments"]
    assert float(written[1]["slowdown"]) == 1.2
    table, judged = fragmentation_tables(ROWS, verdicts)
    assert (table.row_count, judged.row_count) == (3, 1)
    narrow, _ = fragmentation_tables(ROWS, verdicts, 60)
    assert {"GPUs of a job", "network", "slow-down"} <= {str(column.header) for column in narrow.columns}
    assert narrow.row_count == 3

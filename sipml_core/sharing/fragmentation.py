"""The study `fragmentation`: allocators, with and without a switch in front, and claims that are judged."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any

from sipml_core.errors import ConfigError
from sipml_core.experiment import structure
from sipml_core.fields import frozen, option
from sipml_core.model import SILENT, Progress
from sipml_core.plugin import Registry
from sipml_core.sharing.clusterrun import run_shared
from sipml_core.sharing.jobtables import read_shared
from sipml_core.sharing.sharedresult import NetworkSummary


@frozen(kw_only=True)
class Setting:
    """[[setting]]"""

    label: str = option(doc="what the results call it")
    allocator: str = option(doc="which GPUs a job gets")
    front_switch: bool = option(False, doc="whether a conventional circuit switch maps GPUs to any place")


@frozen(kw_only=True)
class SharingClaim:
    """[[claim]]: the ratio of one quantity in two settings, each of a label and a network."""

    text: str = option(doc="what the paper says, or follows from it")
    column: str = option(doc="quantity of a `NetworkSummary`")
    over: tuple[str, ...] = option(doc="setting and network")
    under: tuple[str, ...] = option(doc="setting and network")
    at_least: float | None = option(None, doc="holds only if the ratio is that large")
    at_most: float | None = option(None, doc="holds only if the ratio is no larger")


@frozen(kw_only=True)
class SharingStudy:
    """The file of the study."""

    title: str = option(doc="name")
    experiment: Mapping[str, Any] = option(doc="jobs and networks, as a file of `share`")
    setting: tuple[Setting, ...] = option(doc="how GPUs are given to jobs")
    claim: tuple[SharingClaim, ...] = option((), doc="what is held against the results")


@frozen(kw_only=True)
class SettingRow:
    """One network in one setting."""

    setting: str
    summary: NetworkSummary


@frozen(kw_only=True)
class SharingVerdict:
    """A claim, held against the rows."""

    claim: str
    ratio: float | None
    verdict: str


def fragmentation_study() -> SharingStudy:
    """Return the study that comes with the core."""
    text = files("sipml_core.sharing").joinpath("fragmentation.toml").read_text(encoding="utf-8")
    return structure(tomllib.loads(text), SharingStudy, "fragmentation")


def setting_rows(
    study: SharingStudy, setting: Setting, registry: Registry, quick: bool, progress: Progress = SILENT
) -> list[SettingRow]:
    """Return what becomes of all jobs in one setting, a row for each network; quick: 15 jobs on 32 GPUs."""
    tables = dict(study.experiment)
    tables["sharing"] = {"allocator": setting.allocator, "front_switch": setting.front_switch}
    if quick:
        tables["cluster"] = {**tables["cluster"], "gpus": 32}
        tables["arrivals"] = {**tables["arrivals"], "jobs": 15, "mean_interval_us": "2 s"}
    result = run_shared(read_shared(tables, registry), progress)
    return [SettingRow(setting=setting.label, summary=summary) for summary in result.summaries]


def verdicts_on_sharing(claims: Sequence[SharingClaim], rows: Sequence[SettingRow]) -> list[SharingVerdict]:
    """Return the verdict on each claim.

    Raises
    ------
    ConfigError
        A claim names a setting on a network that was not run.
    """
    return [_judged(claim, rows) for claim in claims]


def _judged(claim: SharingClaim, rows: Sequence[SettingRow]) -> SharingVerdict:
    over, under = (_value(rows, claim.column, *ends) for ends in (claim.over, claim.under))
    if under == 0:
        return SharingVerdict(claim=claim.text, ratio=None, verdict="nothing to compare with: 0")
    ratio = over / under
    wrong = [
        f"{ratio:.3g}, {relation} {limit:g} expected"
        for relation, limit, fails in (
            ("at least", claim.at_least, claim.at_least is not None and ratio < claim.at_least),
            ("at most", claim.at_most, claim.at_most is not None and ratio > claim.at_most),
        )
        if fails
    ]
    return SharingVerdict(claim=claim.text, ratio=ratio, verdict=f"differs: {wrong[0]}" if wrong else "holds")


def _value(rows: Sequence[SettingRow], column: str, setting: str, network: str) -> float:
    for row in rows:
        if (row.setting, row.summary.topology) == (setting, network):
            return float(getattr(row.summary, column))
    raise ConfigError(f"a claim is about {setting!r} on {network!r}, which was not run")


def study_in_process(quick: bool, setting: Setting) -> list[SettingRow]:
    """Return the rows of one setting of the study, with the plugins that are installed: for executors."""
    from sipml_core.plugin import load

    return setting_rows(fragmentation_study(), setting, load(), quick)


def carry_out_fragmentation(executor: Any, quick: bool, progress: Progress = SILENT) -> list[SettingRow]:
    """Return the rows of all settings, in their order, wherever `executor` works."""
    study = fragmentation_study()
    found: dict[int, list[SettingRow]] = {}

    def received(number: int, rows: list[SettingRow]) -> None:
        found[number] = rows
        progress.at(len(found) / len(study.setting))

    executor.each(partial(study_in_process, quick), study.setting, received)
    return [row for number in sorted(found) for row in found[number]]

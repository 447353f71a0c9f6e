"""How time and memory grow with GPUs, layers, mp and processes, by phase; and a profile of the slowest run.

    python benchmarks/growth.py                                  # all four tables, about ten minutes
    python benchmarks/growth.py layers --largest 24              # one of them, small values only
    python benchmarks/growth.py gpus --topology sip-ring --fold auto

Each run has a process of its own: seconds of the processor (of a search, the wall's beside them), peak
memory of that process, and the exponent x of time ~ value^x from one row to the next. A phase does not count
what another takes inside it; "other" is what none takes.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import math
import pstats
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

PHASES = (
    "start", "layout", "partition", "placement", "memory",
    "lowering", "routes", "circuits", "engine", "report",
)  # fmt: skip
PARTS = {
    "gpus": (64, 256, 1024, 4096, 16384),
    "layers": (6, 12, 24, 48, 96),
    "mp": (8, 16, 32, 64),
    "jobs": (1, 2),
}
MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024


class Phases:
    """Seconds of the processor by phase, without what phases inside it take."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._inside = ["start"]
        self._since_s = 0.0

    def now(self, phase: str) -> None:
        """Charge the time since the last change to the phase that was going on; `phase` goes on from here."""
        now_s = time.process_time()
        self.seconds[self._inside[-1]] += now_s - self._since_s
        self._since_s, self._inside[-1] = now_s, phase

    def watch(self, phase: str, owner: Any, name: str) -> None:
        """Charge every call of a function to a phase."""
        function = getattr(owner, name)

        def watched(*arguments: Any, **keywords: Any) -> Any:
            outer = self._inside[-1]
            self.now(outer)
            self._inside.append(phase)
            try:
                return function(*arguments, **keywords)
            finally:
                self.now(phase)
                self._inside.pop()

        setattr(owner, name, watched)


def watch_all(phases: Phases, schedulers: list[type]) -> None:
    """Watch each step of a case where it is called."""
    from sipml_core.cases import compilation, preparation, simulating, variants
    from sipml_core.lowering import Pairs
    from sipml_core.model import Network

    phases.watch("layout", variants, "op_layout")
    phases.watch("partition", variants, "balanced_graph")
    phases.watch("placement", variants, "placed")
    phases.watch("memory", variants, "memory_need")
    phases.watch("lowering", compilation, "variant_lowering")
    phases.watch("lowering", preparation, "whole_job")
    phases.watch("lowering", preparation, "_of_first_groups")
    phases.watch("lowering", preparation, "_folded")
    phases.watch("lowering", Pairs, "of")
    phases.watch("routes", Network, "of")
    for room in (compilation, preparation):
        phases.watch("circuits", room, "circuits_for")
    for scheduler in schedulers:
        phases.watch("circuits", scheduler, "plan")
    phases.watch("engine", simulating, "simulate")


def tables(part: str, value: int, topology: str, fold: str) -> dict[str, Any]:
    """Return the experiment of one row."""
    gpus, mp, workload = 1024, 8, {"name": "transformer"}
    model = {"name": "v100"}
    if part == "gpus":
        gpus = value
    elif part == "layers":
        gpus, workload, model = 128, {"name": "gpt", "layers": value}, {"name": "h100"}
    elif part == "mp":
        mp = value
    else:
        gpus = 64
    strategy = {"mp": mp, "dp": gpus // mp, "global_batch": gpus}
    if part == "layers":
        strategy["recompute"] = "full"
    planned = {"search": {"global_batches": [64, 256]}} if part == "jobs" else {"strategy": strategy}
    return {
        "title": "growth",
        "cluster": {"gpus": gpus, "bandwidth_gbps": "2 Tbps"},
        "gpu": model,
        "workload": [{**workload, **planned}],
        "topology": [{"name": topology}],
        "engine": {"fold": fold},
    }


def one(part: str, value: int, topology: str, fold: str, profile: bool) -> None:
    """Run one row in this process and print what it took as JSON, or its profile."""
    phases = Phases()
    from sipml_core.cases import ExperimentRun
    from sipml_core.experiment import read_experiment
    from sipml_core.plugin import load
    from sipml_core.report import result_tables, write_result

    experiment = read_experiment(tables(part, value, topology, fold), load())
    watch_all(phases, [type(each.scheduler) for each in experiment.interconnects if each.scheduler])
    profiler = cProfile.Profile()
    phases.now("other")
    started_s = time.perf_counter()
    if profile:
        profiler.enable()
    if part == "jobs":
        from sipml_core.searching import search

        search([experiment], jobs=value)
    else:
        running = ExperimentRun(experiment, timelines=False)  # as the command does
        running.go()
        result = running.result()
        phases.now("report")
        list(result_tables(result))
        with tempfile.TemporaryDirectory() as folder:
            write_result(result, Path(folder))
        if result.cases[0].reason:
            print(result.cases[0].reason, file=sys.stderr)
    phases.now("other")
    if profile:
        profiler.disable()
        pstats.Stats(profiler).strip_dirs().sort_stats("tottime").print_stats(15)
        return
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(
        json.dumps(
            {
                **phases.seconds,
                "total": sum(each.ru_utime + each.ru_stime for each in used),
                "wall": time.perf_counter() - started_s,
                "megabytes": max(each.ru_maxrss for each in used) * MAXRSS_BYTES / 1e6,
            }
        )
    )


def table(part: str, values: list[int], run: Callable[[int], dict[str, float]]) -> float:
    """Print the rows of one part, each when it is known; return what the last took. [s]"""
    heads = [part, *PHASES, "other", "total", "wall", "MB", "exponent of total"]
    print("|", " | ".join(heads), "|\n|" + "--:|" * len(heads))
    before: tuple[int, float] | None = None
    for value in values:
        took = run(value)
        total = took["total"]
        grown = math.log(total / before[1]) / math.log(value / before[0]) if before else None
        cells = [f"{took.get(each, 0.0):.2f}" for each in (*PHASES, "other", "total", "wall")]
        cells += [f"{took['megabytes']:.0f}", "" if grown is None else f"{grown:.2f}"]
        print(f"| {value} |", " | ".join(cells), "|", flush=True)
        before = value, total
    print()
    return before[1] if before else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default all")
    parser.add_argument("--largest", type=int, default=16384, help="leave out larger values")
    parser.add_argument("--topology", default="sip-ocs")
    parser.add_argument("--fold", default="never", choices=("never", "auto"), help="engine.fold")
    parser.add_argument("--no-profile", action="store_true", help="do not run the slowest again")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--profile", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if asked.one is not None:
        one(asked.parts[0], asked.one, asked.topology, asked.fold, asked.profile)
        return

    def child(part: str, value: int, *more: str) -> str:
        command = [sys.executable, __file__, part, "--one", str(value)]
        command += ["--topology", asked.topology, "--fold", asked.fold, *more]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

    slowest: tuple[float, str, int] | None = None
    for part in asked.parts or PARTS:
        values = [value for value in PARTS[part] if value <= asked.largest]
        if values:
            last_s = table(part, values, lambda value, part=part: json.loads(child(part, value)))
            slowest = max(slowest or (0.0, "", 0), (last_s, part, values[-1]))
    if slowest and not asked.no_profile:
        print(f"Profile of {slowest[1]} = {slowest[2]}:", child(slowest[1], slowest[2], "--profile"))


if __name__ == "__main__":
    main()

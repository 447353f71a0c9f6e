"""Says what is about to run."""

from sipml_core.plugin import hookimpl


@hookimpl
def sipml_run_started(experiment):
    networks = ", ".join(interconnect.label for interconnect in experiment.interconnects)
    print(f"{experiment.title}: {len(experiment.jobs)} workloads on {networks}")

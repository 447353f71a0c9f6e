"""Says which interconnect was fastest for each workload."""

from sipml_core.plugin import hookimpl


@hookimpl
def sipml_run_finished(result):
    for workload in dict.fromkeys(case.workload for case in result.cases):
        cases = [case for case in result.cases if case.workload == workload]
        best = min(cases, key=lambda case: case.time_to_accuracy_s)
        print(f"{workload}: {best.topology}")

"""Says which interconnect was fastest for each workload."""

from sipml_core.plugin import hookimpl


@hookimpl
def sipml_run_finished(result):
    for workload in dict.fromkeys(case.workload for case in result.cases):
        ran = [case for case in result.cases if case.workload == workload and case.ran]
        if ran:
            best = min(ran, key=lambda case: case.time_to_goal_s)
            print(f"{workload}: {best.topology}")

"""When the host has issued the ops and collectives of one iteration, where it takes time to do so.

Each GPU has a host thread of its own, which issues the GPU's ops in the order of its passes. Within one stage
it never waits for the GPU: all of an iteration may be issued ahead. Between stages it waits for what other
stages send, and for its GPU, as frameworks do that synchronise at every receive: a pass is issued from when
the pass before has ended and its inputs are there. Steps of the optimizer are few launches for all parameters
and are not charged.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.fields import frozen
from sipml_core.lowering.callcosts import exchange_calls
from sipml_core.lowering.grouptasks import Indices
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.lowering.passtasks import row_of
from sipml_core.model import Framework, Nodes, TaskBuilder


@frozen(kw_only=True)
class HostTime:
    """Adds waits for the host to the tasks of one iteration."""

    template: GroupTemplate
    framework: Framework
    builder: TaskBuilder

    def add(
        self, tasks: Nodes, sends: Nodes, pass_ends: list[Nodes], mark_before: Nodes | None = None
    ) -> None:
        """Let no task begin before the host has issued it.

        Parameters
        ----------
        tasks, sends
            Of an iteration. [micro-batches, tasks, groups], [micro-batches, transfers, groups]
        pass_ends
            Where the passes of each stage end. [stages] of [passes, groups]
        mark_before
            End of the iteration before, when the host begins with this one; None: this is the first. [1]
        """
        if not (self.framework.op_us or self.framework.collective_us):
            return
        if self.template.plan.pp > 1:
            self._add_by_pass(tasks, sends, pass_ends, mark_before)
            return
        issued_us = issue_times_us(self.template, self.framework)
        batch, column = np.nonzero(np.broadcast_to(self.template.passes.row >= 0, issued_us.shape))
        self._delay(tasks[batch, column], issued_us[batch, column], mark_before)

    def _delay(self, tasks: Nodes, issued_us: NDArray[np.float64], since: Nodes | None) -> None:
        """Let tasks [n, groups] begin `issued_us` [n] after nodes [1] or [groups]; None: the start."""
        delays = self.builder.delays(issued_us[:, None], tasks.shape, label=len(self.builder.labels) - 1)
        self.builder.depend(delays, tasks)
        if since is not None:
            self.builder.depend(since, delays)

    def _add_by_pass(
        self, tasks: Nodes, sends: Nodes, pass_ends: list[Nodes], mark_before: Nodes | None
    ) -> None:
        template = self.template
        passes, transfers, label = template.passes, template.transfers, len(self.builder.labels) - 1
        offset_us = pass_times_us(template, self.framework)
        devices = template.group.placement.limits.devices
        crossing = transfers.sender // devices != transfers.device // devices
        arrives = crossing[transfers.arrival]
        for own, ends in zip(passes.passes, pass_ends, strict=True):
            begins = self.builder.barriers(ends.shape, label=label)
            self.builder.depend(ends[:-1], begins[1:])
            if mark_before is not None:
                self.builder.depend(mark_before, begins[0])
            for number, each in enumerate(own):
                members = np.flatnonzero(passes.row == row_of(each))
                # Transfers from other stages whose arrival a task of this pass waits for.
                inputs = transfers.arrival[arrives & (passes.row[transfers.consumer] == row_of(each))]
                self.builder.depend(sends[each.micro_batch, np.unique(inputs)], begins[number])
                self._delay(tasks[each.micro_batch, members], offset_us[members], begins[number])


def issue_times_us(template: GroupTemplate, framework: Framework) -> NDArray[np.float64]:
    """Return when each task is issued, from the begin of the iteration. [micro-batches, tasks] [us]

    A collective is issued with the first op of the GPU that sends in it.

    Examples
    --------
    The worked example, 1 us for each op and 10 us for each collective: device 0 sends y after its first task,
    and devices 1 and 2 send their parts of dy; all take the time of that call before the next op.

    >>> from sipml_core.testing.worked import lowering
    >>> template = lowering(dp=2).template
    >>> template.group.device.tolist()
    [0, 0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 2]
    >>> issue_times_us(template, Framework(host_us=1.0)).tolist()
    [[1.0, 2.0, 1.0, 1.0, 3.0, 2.0, 2.0, 4.0, 4.0, 4.0, 2.0, 2.0]]
    >>> issue_times_us(template, Framework(host_us=1.0, host_collective_us=10.0)).tolist()[0][:6]
    [11.0, 12.0, 1.0, 1.0, 13.0, 12.0]
    """
    group, passes, plan = template.group, template.passes, template.plan
    every = np.arange(plan.micro_batches, dtype=np.int32)
    columns = np.arange(len(group.subop), dtype=np.int32)

    # Place of each task among all of its device, and what it takes. [micro-batches, tasks]
    place = group.position + len(columns) * passes.slots_of(columns, every)
    cost_us = np.broadcast_to(_host_us(template, framework), place.shape)
    device = np.broadcast_to(group.device, place.shape)
    return _running_sums(cost_us.reshape(-1), device.reshape(-1), place.reshape(-1)).reshape(place.shape)


def pass_times_us(template: GroupTemplate, framework: Framework) -> NDArray[np.float64]:
    """Return when each task is issued, from the begin of its pass. [tasks] [us]

    >>> from sipml_core.testing.worked import lowering
    >>> pass_times_us(lowering(dp=2).template, Framework(host_us=1.0)).tolist()
    [1.0, 2.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 0.0, 0.0, 0.0, 0.0]
    """
    group, row = template.group, template.passes.row
    of_pass = row.astype(np.int64) * group.placement.devices + group.device
    return _running_sums(_host_us(template, framework), of_pass, group.position)


def _running_sums(
    cost_us: NDArray[np.float64], owner: NDArray[np.integer], place: NDArray[np.integer]
) -> NDArray[np.float64]:
    """Return for each item the sum of its own cost and those of its owner's before it. [items]

    >>> _running_sums(np.array([1.0, 2.0, 4.0]), np.array([0, 1, 0]), np.array([5, 0, 3])).tolist()
    [5.0, 2.0, 4.0]
    """
    order = np.lexsort((place, owner))
    total = np.cumsum(cost_us[order])
    # What the owners before take is no time of one.
    first = np.flatnonzero(np.diff(owner[order], prepend=owner[order][0] - 1))
    before = np.repeat(total[first] - cost_us[order][first], np.diff(np.append(first, len(order))))
    sums = np.empty(len(order))
    sums[order] = total - before
    return sums


def _host_us(template: GroupTemplate, framework: Framework) -> NDArray[np.float64]:
    """Return what the host takes for each task and the collectives issued with it. [tasks] [us]"""
    group, transfers = template.group, template.transfers
    # Sub-ops of one op on one device are one launch.
    cost_us = np.zeros(len(group.subop))
    again = np.arange(len(group.subop)) >= group.graph.subops
    launch = (group.op.astype(np.int64) * 2 + again) * group.placement.devices + group.device
    cost_us[np.unique(launch, return_index=True)[1]] = framework.op_us
    cost_us[template.passes.row < 0] = 0.0
    if framework.collective_us:
        maker: Indices = np.full(len(transfers.sender), -1, dtype=np.int32)
        maker[transfers.made] = transfers.maker
        for call in exchange_calls(transfers, group):
            makers = maker[call.rows]
            makers = makers[makers >= 0]
            first = np.unique(group.device[makers], return_index=True)[1]
            cost_us[makers[first]] += framework.collective_us * call.part
    return cost_us

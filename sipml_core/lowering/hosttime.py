"""When the host has issued the ops and collectives of one iteration, where it takes time to do so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sipml_core.lowering.callcosts import exchange_calls
from sipml_core.lowering.grouptemplate import GroupTemplate
from sipml_core.model import Framework


def issue_times_us(template: GroupTemplate, framework: Framework) -> NDArray[np.float64]:
    """Return when each task is issued, from the begin of the iteration. [micro-batches, tasks] [us]

    Each GPU has a host thread of its own, which issues the GPU's ops in the order of its passes and never
    waits for the GPU. A collective is issued with the first op of the GPU that sends in it.

    Examples
    --------
    The worked example, 1 us for each op and 10 us for each collective: device 0 sends y after its first task,
    and devices 1 and 2 send their parts of dy; all take the time of that call before the next op.

    >>> from sipml_core.testing.worked import lowering
    >>> template = lowering(dp=2).template
    >>> template.group.device.tolist()
    [0, 0, 1, 2, 0, 1, 2, 0, 0, 0, 1, 2]
    >>> issue_times_us(template, Framework(host_us=1.0)).tolist()
    [[1.0, 2.0, 1.0, 1.0, 3.0, 2.0, 2.0, 4.0, 5.0, 6.0, 3.0, 3.0]]
    >>> issue_times_us(template, Framework(host_us=1.0, host_collective_us=10.0)).tolist()[0][:6]
    [11.0, 12.0, 1.0, 1.0, 13.0, 12.0]
    """
    group, passes, plan = template.group, template.passes, template.plan
    cost_us = _host_us(template, framework)
    every = np.arange(plan.micro_batches, dtype=np.int32)
    columns = np.arange(len(group.subop), dtype=np.int32)

    # Place of each task among all of its device, and the device. [micro-batches, tasks]
    place = group.position + len(columns) * passes.slots_of(columns, every)
    device = np.broadcast_to(group.device, place.shape)
    cost = np.broadcast_to(cost_us, place.shape).copy()
    # The optimizer's tasks are there once, after the last micro-batch.
    cost[:-1, passes.row < 0] = 0.0

    order = np.lexsort((place.reshape(-1), device.reshape(-1)))
    issued = np.cumsum(cost.reshape(-1)[order])
    # What the devices before one took is no time of it.
    first = np.flatnonzero(np.diff(device.reshape(-1)[order], prepend=-1))
    before = np.repeat(issued[first] - cost.reshape(-1)[order][first], np.diff(np.append(first, len(order))))
    times = np.empty(len(order))
    times[order] = issued - before
    return times.reshape(place.shape)


def _host_us(template: GroupTemplate, framework: Framework) -> NDArray[np.float64]:
    """Return what the host takes for each task and the collectives issued with it. [tasks] [us]"""
    group, transfers = template.group, template.transfers
    # Sub-ops of one op on one device are one launch.
    cost_us = np.zeros(len(group.subop))
    again = np.arange(len(group.subop)) >= group.graph.subops
    launch = (group.op.astype(np.int64) * 2 + again) * group.placement.devices + group.device
    cost_us[np.unique(launch, return_index=True)[1]] = framework.op_us
    if framework.collective_us:
        maker = np.full(len(transfers.sender), -1, dtype=np.int64)
        maker[transfers.made] = transfers.maker
        for call in exchange_calls(transfers, group):
            makers = maker[call.rows]
            makers = makers[makers >= 0]
            first = np.unique(group.device[makers], return_index=True)[1]
            cost_us[makers[first]] += framework.collective_us
    return cost_us

"""Why a run cannot go on, in one line."""

from __future__ import annotations

import numpy as np

from sipml_core.engine.session import Session
from sipml_core.errors import StalledError
from sipml_core.model import Network, transfer_name

#: Blocked tasks that a message names.
_NAMED = 5


def stalled(session: Session, capacity_gbps: np.ndarray) -> StalledError:
    """The error for a session in which nothing moves.

    Parameters
    ----------
    capacity_gbps
        Capacity of each link as it stands. [links]
    """
    nodes = session.work.nodes
    left = nodes - session.ended
    reasons = _waiting_transfers(session, capacity_gbps) or [_cycle(session)]
    more = f"; and {len(reasons) - _NAMED} more" if len(reasons) > _NAMED else ""
    return StalledError(
        f"nothing can run at {session.now_us:g} us and {left} of {nodes} tasks remain: "
        + "; ".join(reasons[:_NAMED])
        + more
    )


def _waiting_transfers(session: Session, capacity_gbps: np.ndarray) -> list[str]:
    """Transfers that joined a queue and never ended, those on dead links first."""
    tasks, network = session.tasks, session.network
    first = tasks.compute_tasks
    waits = np.isfinite(session.start_us[first:]) & np.isnan(session.end_us[first:])
    transfers = np.flatnonzero(waits)
    places, pairs = (each[transfers] for each in session.places())
    blocked, behind = [], []
    for row in np.argsort(places).tolist():
        place, pair = int(places[row]), int(pairs[row])
        links = network.pair_link[network.pair_start[pair] : network.pair_start[pair + 1]]
        dead = [link for link in links.tolist() if capacity_gbps[link] <= 0]
        src, dst, size_bytes = (
            network.pair_src[pair], network.pair_dst[pair], tasks.size_bytes[transfers[row]],
        )  # fmt: skip
        name = transfer_name(place, src, dst, size_bytes)
        if dead:
            named = ", ".join(_link_name(network, link) for link in dead)
            blocked.append(f"{name} waits on {named} at 0 Gbps, which no decision changes")
        else:
            behind.append(f"{name} waits behind another transfer of GPU {src}")
    return blocked + behind


def _link_name(network: Network, link: int) -> str:
    circuit = link - network.first_circuit
    if circuit < 0:
        return f"link {network.link_id[link]}"
    return f"circuit {network.circuit_src[circuit]}->{network.circuit_dst[circuit]}"


def _cycle(session: Session) -> str:
    """Names nodes of one dependency cycle: nothing else blocks a node that no queue holds."""
    tasks = session.tasks
    source = np.repeat(np.arange(tasks.nodes), np.diff(tasks.succ_start))
    among_blocked = np.isnan(session.end_us[source]) & np.isnan(session.end_us[tasks.successors])
    before = dict(zip(tasks.successors[among_blocked].tolist(), source[among_blocked].tolist(), strict=True))
    node, seen = next(iter(before)), dict[int, int]()
    while node not in seen:
        seen[node] = len(seen)
        node = before[node]
    cycle = list(seen)[seen[node] :][::-1]
    shown = " -> ".join(tasks.node_name(member) for member in cycle[:_NAMED])
    return f"a dependency cycle of {len(cycle)}: {shown}{' -> ...' if len(cycle) > _NAMED else ''}"

"""What happened in a simulated case: tables of GPUs, links, traffic, transfers and circuits; causes; a trace.

In: a `CaseRecord`. Out: tables as columns, a critical path, bytes of a trace.
Imports only `model`, `fields` and `errors`; each file only when something of it is asked for.
"""

from typing import TYPE_CHECKING

from sipml_core.lazy import files_when_asked

if TYPE_CHECKING:
    from sipml_core.details.casedetails import CaseDetails, CircuitSpan
    from sipml_core.details.causes import PathStep, critical_path, last_cause
    from sipml_core.details.perfetto import Packet, decoded
    from sipml_core.details.selection import Selection, parse_numbers, parse_window
    from sipml_core.details.tracefile import trace_bytes, trace_size

__getattr__ = files_when_asked(
    __name__,
    {
        "casedetails": ("CaseDetails", "CircuitSpan"),
        "causes": ("PathStep", "critical_path", "last_cause"),
        "perfetto": ("Packet", "decoded"),
        "selection": ("Selection", "parse_numbers", "parse_window"),
        "tracefile": ("trace_bytes", "trace_size"),
    },
)

__all__ = [
    "CaseDetails",
    "CircuitSpan",
    "Packet",
    "PathStep",
    "Selection",
    "critical_path",
    "decoded",
    "last_cause",
    "parse_numbers",
    "parse_window",
    "trace_bytes",
    "trace_size",
]

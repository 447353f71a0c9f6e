"""Why bytes are sent."""

from __future__ import annotations

#: Between parts of ops, between stages, to and from experts, between parts of sequences, and for gradients
#: and parameters that replicas share.
TRAFFIC_KINDS = ("tensor", "pipeline", "expert", "context", "gradient")
TENSOR, PIPELINE, EXPERT, CONTEXT, GRADIENT = range(len(TRAFFIC_KINDS))

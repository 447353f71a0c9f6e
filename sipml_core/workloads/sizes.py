"""How large a model may be: far past any that exists, and small enough to be counted and drawn up."""

from __future__ import annotations

from typing import Any

from sipml_core.errors import ConfigError
from sipml_core.fields import between
from sipml_core.workloads.nearest import nearest_divisor

#: Every layer is some ten ops, whose times and places are computed one by one.
MAX_LAYERS = 1000
#: Features of a token, and inner features of a layer.
MAX_FEATURES = 2**20
#: Tokens of a sample.
MAX_TOKENS = 2**20
#: Tokens of a vocabulary, and classes of a picture.
MAX_CLASSES = 2**24
#: Height and width of a picture.
MAX_PIXELS = 2**16
#: Experts of a layer.
MAX_EXPERTS = 2**16


def check_heads(options: Any, attribute: Any, heads: int) -> None:
    """Validator: heads divide the hidden size."""
    between(1, MAX_FEATURES)(options, attribute, heads)
    if options.hidden % heads:
        raise ConfigError(
            f"{attribute.name} must divide hidden = {options.hidden}, got {heads}; "
            f"nearest: {nearest_divisor(options.hidden, heads)}"
        )

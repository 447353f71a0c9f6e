"""What training a model costs in floating-point operations, whoever executes them."""

from __future__ import annotations

import attrs

from sipml_core.fields import at_least, frozen


@frozen(kw_only=True)
class ModelFlops:
    """FLOPs of one training step for one token: forward once, backward twice as much, nothing run again.

    Matrix products and attention alone count, a multiply-add as 2 (Narayanan et al. 2021, appendix).
    """

    #: Products with parameters: 6 for each that the token meets.
    products: float = attrs.field(validator=at_least(0))
    #: Scores of all pairs of tokens, and what is made of them: 12 s for each feature of a layer.
    attention: float = attrs.field(validator=at_least(0))
    #: Of these, what causal masks and windows leave.
    needed_attention: float = attrs.field(validator=at_least(0))

    @property
    def total(self) -> float:
        """Return FLOPs with attention in full, as is usual."""
        return self.products + self.attention

    @property
    def needed(self) -> float:
        """Return FLOPs with attention where it is needed."""
        return self.products + self.needed_attention

"""What a number could be instead, for messages."""

from __future__ import annotations

from collections.abc import Iterable

from sipml_core.model import Plan


def nearest_divisor(number: int, wanted: int) -> int:
    """Return the divisor of a number that is nearest, the smaller of two.

    >>> nearest_divisor(32, 5), nearest_divisor(32, 12)
    (4, 8)
    """
    divisors = (d for d in range(1, number + 1) if number % d == 0)
    return min(divisors, key=lambda divisor: abs(divisor - wanted))


def nearest_mp(fits: Iterable[int], plan: Plan) -> int:
    """Return the nearest to a plan's mp of some degrees, 1 among them, that divide its GPUs as well.

    The GPUs of a stage and a part of a sequence, that is: mp x dp of them.

    >>> nearest_mp([1, 2, 4, 8, 16], Plan(mp=7, dp=2, global_batch=2))
    2
    """
    return min((fit for fit in fits if plan.mp * plan.dp % fit == 0), key=lambda fit: abs(fit - plan.mp))

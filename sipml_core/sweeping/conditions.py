"""Conditions on the values of axes, such as "{plan.mp} * {plan.dp} == {cluster.gpus}"."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from sipml_core.errors import ConfigError, shown, unknown

_KEY = re.compile(r"\{([^{}]*)\}")
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda item, items: item in items,
    ast.NotIn: lambda item, items: item not in items,
}
_COMPUTE: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def holds(condition: str, values: Mapping[str, Any]) -> bool:
    """Return whether a condition holds for values of axes, each of which stands as {KEY} in it.

    >>> holds("{plan.mp} <= {cluster.gpus} / 2", {"plan.mp": 8, "cluster.gpus": 8})
    False
    >>> holds("{topology.name} in ['sip-ring'] or not {plan.mp} % 2", {"topology.name": "x", "plan.mp": 4})
    True

    Raises
    ------
    ConfigError
        It names what is no axis, or cannot be computed.
    """
    names: dict[str, Any] = {}

    def name_of(found: re.Match[str]) -> str:
        key = found[1].strip()
        if key not in values:
            raise ConfigError(f"only: {unknown('axis', key, values)}")
        names[f"v{len(names)}"] = values[key]
        return f" v{len(names) - 1} "

    text = _KEY.sub(name_of, condition).strip()
    try:
        return bool(_value(ast.parse(text, mode="eval").body, names))
    except (SyntaxError, ValueError, RecursionError):
        raise ConfigError(
            f"only: {shown(condition)} is no condition; write one such as '{{plan.mp}} <= 8 and "
            "{cluster.gpus} > 8', with axes in braces, numbers and text"
        ) from None
    except (TypeError, ArithmeticError) as error:
        raise ConfigError(f"only: {shown(condition)} cannot be computed: {error}") from None


def _value(node: ast.expr, names: Mapping[str, Any]) -> Any:
    """Return the value of an expression; `ValueError` if it does more than compare and compute."""
    match node:
        case ast.Constant(value=int() | float() | str() | bool() as value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, names) for item in items]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, names)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, names)
        case ast.BoolOp(op=ast.And(), values=parts):
            return all(_value(part, names) for part in parts)
        case ast.BoolOp(values=parts):
            return any(_value(part, names) for part in parts)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _COMPUTE:
            ends = _value(left, names), _value(right, names)
            if not all(isinstance(end, (int, float)) for end in ends):
                raise TypeError(f"{shown(ends[0])} and {shown(ends[1])} are not both numbers")
            return _COMPUTE[type(op)](*ends)
        case ast.Compare(left=left, ops=ops, comparators=others):
            sides = [_value(each, names) for each in (left, *others)]
            return all(_COMPARE[type(op)](sides[place], sides[place + 1]) for place, op in enumerate(ops))
    raise ValueError("not a condition")

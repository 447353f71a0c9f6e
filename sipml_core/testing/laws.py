"""How a law is stated and how its breach is told; laws that hold for every kind of offer."""

from __future__ import annotations

import math
import os
import traceback
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar

import attrs

from sipml_core.errors import ConfigError, SipmlError
from sipml_core.experiment import structure
from sipml_core.plugin import Component

#: What a user may type where a number, a name or a switch is expected.
_NONSENSE: tuple[Any, ...] = (math.nan, math.inf, -1, -1.5, 0, "no such value", "", True, [], {})

#: pytest leaves the frames of this file out, so that the law's sentence comes first.
__tracebackhide__ = True

#: Folder of sipml's own code.
_HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

#: Endings of names that promise a unit.
_UNITS = {"us": "us", "s": "s", "gbps": "Gbps", "bytes": "bytes"}


class LawBroken(AssertionError):
    """What a conformance suite found."""


class law:
    """Turns whatever goes wrong inside into the law that broke and the case that broke it.

    >>> with law("two and two are four", world="ours"):
    ...     require(2 + 2 == 5, f"they are {2 + 2}")
    Traceback (most recent call last):
    ...
    sipml_core.testing.laws.LawBroken: law broken: two and two are four
      case: world=ours
      found: they are 4
    """

    def __init__(self, sentence: str, **case: Any) -> None:
        self.sentence = sentence
        self.case = case

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, trace: TracebackType | None) -> None:
        if not isinstance(error, Exception):
            return
        found = str(error) if isinstance(error, LawBroken) else f"{type(error).__name__}: {error}{_at(trace)}"
        shown = ", ".join(f"{name}={value}" for name, value in self.case.items())
        raise LawBroken(f"law broken: {self.sentence}\n  case: {shown}\n  found: {found}") from None


def _at(trace: TracebackType | None) -> str:
    """Where a stranger's code raised: the last line that is not of this package, if there is one."""
    for frame in reversed(traceback.extract_tb(trace)):
        if not frame.filename.startswith(_HOME):
            return f" ({os.path.basename(frame.filename)}, line {frame.lineno}, in {frame.name})"
    return ""


def require(holds: Any, found: str) -> None:
    """Inside a `law`: what was found instead, unless it holds."""
    if not holds:
        raise LawBroken(found)


class ComponentConformance:
    """Laws of anything a plugin offers."""

    #: Options that all laws are tried with, as in a TOML table.
    options: ClassVar[Mapping[str, Any]] = {}

    @property
    def component(self) -> type[Any]:
        """The class under test."""
        raise NotImplementedError

    def make(self, **changes: Any) -> Any:
        """An instance, its options read as from an experiment file."""
        cls = self.component
        return cls(structure({**self.options, **changes}, cls.Options, cls.name))

    def exercise(self, component: Any) -> None:
        """Use an instance once, in the smallest way; it may refuse with a `SipmlError`."""
        raise NotImplementedError

    def test_it_has_a_name_and_a_line_of_summary(self) -> None:
        with law(
            "a component has a name and one line of summary",
            component=self.component.__qualname__,
        ):
            require(issubclass(self.component, Component), "no subclass of a sipml interface")
            for attribute in ("name", "summary"):
                text = getattr(self.component, attribute, None)
                require(isinstance(text, str) and text, f"{attribute} = {text!r}")
                require("\n" not in str(text), f"{attribute} has several lines")
            require(not set(self.component.name) & set(" .\t\"'[]"), f"name = {self.component.name!r}")

    def test_every_option_is_documented_with_its_unit(self) -> None:
        for field in attrs.fields(self.component.Options):
            with law("every option has a sentence, and a unit if its name has one", option=field.name):
                require(field.metadata.get("doc"), "no doc: declare it with sipml_core.fields.option")
                unit = _UNITS.get(field.name.rpartition("_")[2]) if "_" in field.name else None
                require(not unit or field.metadata.get("unit"), f"no unit, and the name says {unit}")

    def test_options_cannot_be_changed(self) -> None:
        with law(
            "Options is a frozen, keyword-only attrs class", options=self.component.Options.__qualname__
        ):
            require(attrs.has(self.component.Options), "no attrs class")
            require(all(field.kw_only for field in attrs.fields(self.component.Options)), "not kw_only")
            require(_is_frozen(self.make().options), "not frozen")

    def test_refusals_name_the_option(self) -> None:
        for field in attrs.fields(self.component.Options):
            for value in _NONSENSE:
                with law(
                    "an impossible option is refused by a one-line SipmlError that names it",
                    option=field.name,
                    value=repr(value),
                ):
                    self._try(field.name, value)

    def _try(self, name: str, value: Any) -> None:
        try:
            component = self.make(**{name: value})
        except ConfigError as refusal:
            require(name in str(refusal), f"the refusal does not name {name}: {refusal}")
            require("\n" not in str(refusal), f"the refusal has several lines: {refusal}")
            return
        require(not (isinstance(value, float) and math.isnan(value)), "NaN was accepted")
        try:
            self.exercise(component)
        except SipmlError as refusal:
            require("\n" not in str(refusal), f"the refusal has several lines: {refusal}")


def _is_frozen(options: Any) -> bool:
    try:
        options.__setattr__("_", None)
    except attrs.exceptions.FrozenInstanceError:
        return True
    except AttributeError:
        return False
    return False

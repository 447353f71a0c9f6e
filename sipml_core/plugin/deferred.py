"""Offers whose modules are imported when an experiment names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Deferred(NamedTuple):
    """A class that a plugin offers by its name, to be imported when somebody asks for it.

    A hook may return it in place of the class, and never has to: a command then imports, of all that is
    installed, only what its experiment names. What is wrong with the class is said then.
    """

    #: That of the class.
    name: str
    #: Module and class, as in an entry point.
    where: str

    @classmethod
    def of(cls, module: str, classes: Mapping[str, str]) -> list[Deferred]:
        """Return the offers of one module: its classes by the names that they have in experiments.

        >>> Deferred.of("my_package.networks", {"my-ring": "MyRing"})
        [Deferred(name='my-ring', where='my_package.networks:MyRing')]
        """
        return [cls(name, f"{module}:{found}") for name, found in classes.items()]

    @property
    def package(self) -> str:
        """Return the top-level package that brings the class."""
        return self.where.partition(":")[0].partition(".")[0]

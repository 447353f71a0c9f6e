"""A part of some work, for one of several machines that share a store and nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypeVar

from sipml_core.errors import ConfigError, shown
from sipml_core.fields import frozen

T = TypeVar("T")
#: Shards that a piece of work may be divided into.
MAX_SHARDS = 100_000


@frozen
class Shard:
    """Part `number`, from 1, of `of` parts."""

    number: int
    of: int

    @classmethod
    def read(cls, text: str) -> Shard:
        """Return the shard that a text such as "3/16" names; `ConfigError` if it names none.

        >>> Shard.read("3/16")
        Shard(number=3, of=16)
        """
        found = re.fullmatch(r"\s*([0-9]{1,6})\s*/\s*([0-9]{1,6})\s*", text)
        number, of = (int(part) for part in found.groups()) if found else (0, 0)
        if not 1 <= number <= of <= MAX_SHARDS:
            raise ConfigError(
                f"--shard must be a part of a whole such as 3/16, from 1/16 to 16/16, got {shown(text)}"
            )
        return cls(number, of)

    def part(self, pieces: Sequence[T]) -> list[T]:
        """Return every `of`-th piece, so that neighbours, which take alike long, go to different shards.

        >>> Shard(2, 3).part("abcdefg")
        ['b', 'e']
        """
        return list(pieces[self.number - 1 :: self.of])

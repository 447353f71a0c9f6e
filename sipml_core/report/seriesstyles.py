"""How series look: a colour, a marker and dashes each, told apart in black and white too."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from sipml_core.fields import frozen

#: Okabe and Ito 2008, colours that are told apart whatever one's colour vision; yellow is too light for
#: lines.
COLOURS = ("#009E73", "#D55E00", "#000000", "#0072B2", "#56B4E9", "#CC79A7", "#999999", "#E69F00")
MARKERS = ("D", "o", "s", "^", "v", "P", "X", "<", ">", "p", "h", "*")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))

#: Part of the name of series that figures of the paper have -> place in the tables above.
_KNOWN = {
    "Cluster, DP only": 5,
    "200 Gbps": 4,
    "400 Gbps": 3,
    "DP only": 6,
    "Elect-Flat": 2,
    "OCS": 1,
    "Ring": 0,
}


@frozen
class SeriesStyle:
    """The looks of one series."""

    colour: str
    marker: str
    dashes: str | tuple[int, tuple[float, ...]]

    @classmethod
    def number(cls, place: int) -> SeriesStyle:
        """Return the style of a place: the first eight have colours of their own, and no two are alike.

        >>> SeriesStyle.number(1)
        SeriesStyle(colour='#D55E00', marker='o', dashes=(0, (5, 2)))
        """
        return cls(
            colour=COLOURS[place % len(COLOURS)],
            marker=MARKERS[place % len(MARKERS)],
            dashes=DASHES[(place + place // len(DASHES)) % len(DASHES)],
        )


#: Places whose colour and marker, and whose marker and dashes, no other place has.
PLACES = 24


def series_styles(labels: Iterable[str]) -> dict[str, SeriesStyle]:
    """Return a style for each series: the same in every figure where no other claims it, never one twice.

    Series of the paper's figures keep theirs. Others begin at a place that follows from their name, and take
    the next free one.

    >>> styles = series_styles(["SiP-Ring", "my net", "your net"])
    >>> styles["SiP-Ring"].colour, len(set(styles.values()))
    ('#009E73', 3)
    """
    names = list(dict.fromkeys(labels))
    taken: dict[str, int] = {}
    for name in names:
        place = next((place for part, place in _KNOWN.items() if part in name), None)
        if place is not None and place not in taken.values():
            taken[name] = place
    for name in sorted(set(names) - set(taken)):
        taken[name] = _free_place(name, set(taken.values()))
    return {name: SeriesStyle.number(taken[name]) for name in names}


def _free_place(name: str, taken: set[int]) -> int:
    """Return the first free place from one that follows from the name; those of other colours first."""
    first = int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big")
    colours, others = len(COLOURS), PLACES - len(COLOURS)
    order = [(first + k) % colours for k in range(colours)]
    order += [colours + (first + k) % others for k in range(others)]
    return next((place for place in order if place not in taken), order[0])

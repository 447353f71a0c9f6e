"""Edge lists of networks that a formula describes, to be read by the topology `graph`."""

from __future__ import annotations

from collections.abc import Iterator

from sipml_core.errors import ConfigError

#: Switches of a network; pairs of them are gone through one by one.
MAX_SWITCHES = 4096

#: Two switches that a link joins.
Edge = tuple[str, str]


def slimfly(q: int) -> list[Edge]:
    """Return the links between the 2 q^2 routers of a Slim Fly: any two are at most two hops apart.

    See Besta and Hoefler 2014. The graph of McKay, Miller and Siran for a prime q = 4 w + 1 or 4 w - 1.

    >>> len(slimfly(5))
    175

    Raises
    ------
    ConfigError
        q is no odd prime, or too large; the nearest are named.
    """
    if abs(q) < MAX_SWITCHES and not _is_odd_prime(q):
        near = sorted(
            (p for p in range(3, 2 * abs(q) + 8) if _is_odd_prime(p)), key=lambda p: (abs(p - q), p)
        )
        raise ConfigError(
            f"q must be an odd prime, got {q}; nearest: {' or '.join(map(str, sorted(near[:2])))}"
        )
    if 2 * q * q > MAX_SWITCHES:
        raise ConfigError(f"2 q^2 switches must be at most {MAX_SWITCHES}, got q = {q}; nearest: 43")
    powers = [pow(_primitive_root(q), k, q) for k in range(q - 1)]
    if q % 4 == 1:
        even, odd = set(powers[0::2]), set(powers[1::2])
    else:
        half = (q + 1) // 2
        even = {*powers[0 : half - 1 : 2], *powers[half - 1 : q - 1 : 2]}
        odd = {*powers[1:half:2], *powers[half : q - 1 : 2], 1}
    edges = []
    for x in range(q):
        for y in range(q):
            edges += [(f"a{x}.{y}", f"a{x}.{z}") for z in range(y) if (y - z) % q in even]
            edges += [(f"b{x}.{y}", f"b{x}.{z}") for z in range(y) if (y - z) % q in odd]
            edges += [(f"a{x}.{(m * x + y) % q}", f"b{m}.{y}") for m in range(q)]
    return edges


def theia(rows: int, columns: int) -> list[Edge]:
    """Return the links that a passive patch panel makes between the switches of SubRacks.

    In the manner of Theia (Walraed-Sullivan, Padhye, Maltz 2014), here as a flattened butterfly: each switch
    to all others of its row and of its column; one row: each to each.

    >>> theia(1, 3)
    [('s0.0', 's0.1'), ('s0.0', 's0.2'), ('s0.1', 's0.2')]
    """
    if rows < 1 or columns < 2:
        raise ConfigError(f"theia needs 1 row and 2 columns at least, got {rows} x {columns}")
    if rows * columns > MAX_SWITCHES:
        raise ConfigError(
            f"theia has at most {MAX_SWITCHES} switches, got {rows} x {columns}; nearest: 64 x 64"
        )
    switches = [(i, j) for i in range(rows) for j in range(columns)]
    return [
        (f"s{a[0]}.{a[1]}", f"s{b[0]}.{b[1]}")
        for k, a in enumerate(switches)
        for b in switches[k + 1 :]
        if (a[0] == b[0]) != (a[1] == b[1])
    ]


def edge_list(edges: list[Edge], *, gpus: int, gbps: float | None, latency_us: float) -> Iterator[str]:
    """Yield the lines of a CSV file: the links, and `gpus` GPUs on each switch at their own bandwidth.

    Parameters
    ----------
    gbps
        Of a link between switches; None: as a GPU. [Gbps]
    """
    if gpus < 1:
        raise ConfigError(f"each switch must have at least 1 GPU, got {gpus}")
    if gbps is not None and not gbps > 0:
        raise ConfigError(f"gbps must be above 0, got {gbps:g}; leave it out for that of a GPU")
    yield "from, to, gbps, latency_us"
    switches = sorted({end for edge in edges for end in edge}, key=_natural)
    for number, switch in enumerate(switches):
        for gpu in range(number * gpus, (number + 1) * gpus):
            yield f"gpu{gpu}, {switch}, , {latency_us:g}"
    for one, other in edges:
        yield f"{one}, {other}, {'' if gbps is None else format(gbps, 'g')}, {latency_us:g}"


def _natural(switch: str) -> tuple[str, int, int]:
    """Return what sorts a10.2 behind a9.3."""
    first, second = switch[1:].split(".")
    return switch[0], int(first), int(second)


def _is_odd_prime(q: int) -> bool:
    return q > 2 and all(q % d for d in range(2, int(q**0.5) + 1))


def _primitive_root(q: int) -> int:
    """Return the least number whose powers are all numbers from 1 to q - 1."""
    return next(g for g in range(2, q + 2) if len({pow(g, k, q) for k in range(q - 1)}) == q - 1)

"""Sizes and durations as a person reads them, in tables, logs and errors alike."""

from itertools import pairwise

_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def readable(size_bytes: float) -> str:
    """`1.2 GiB`"""
    for unit, step in _UNITS:
        if size_bytes >= step:
            return f"{size_bytes / step:.1f} {unit}"
    return f"{size_bytes:.0f} B"


def rounded(size_bytes: float) -> str:
    """A limit as one would write it: `2 GiB`, not `2.0 GiB`."""
    return readable(size_bytes).replace(".0 ", " ")


def exceeds(size_bytes: int, limit: str, limit_bytes: int) -> str:
    """`2.1 GiB exceeds max_bytes (2 GiB)`. Where both would look alike, the excess is told in its place."""
    most = rounded(limit_bytes)
    if rounded(size_bytes) == most:
        return f"{limit} ({most}) is exceeded by {readable(size_bytes - limit_bytes)}"
    return f"{readable(size_bytes)} exceeds {limit} ({most})"


def span(seconds: float) -> str:
    """The two largest units of a duration: `42 s`, `3 min 12 s`, `5 d 4 h`."""
    whole = int(seconds)
    for (large, step), (small, below) in pairwise(_SPANS):
        if whole >= step:
            rest = whole % step // below
            return f"{whole // step} {large}" + (f" {rest} {small}" if rest else "")
    return f"{whole} s"


_SPANS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))

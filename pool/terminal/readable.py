"""Sizes, durations and shapes as a person reads them. `--json` has the exact values."""

from collections.abc import Sequence

from pool.wire.sizes import readable, span

__all__ = ["count_of", "gibibytes", "labelled", "percent", "short_uuid", "size", "span"]

_UUID_PREFIXES = ("GPU-", "MIG-")


def size(size_bytes: int | None) -> str:
    """`1.2 GiB`; a dash where nobody knows."""
    return "–" if size_bytes is None else readable(size_bytes)


def gibibytes(used_bytes: int, total_bytes: int) -> str:
    """`12.3/80 GiB`"""
    return f"{used_bytes / 2**30:.3g}/{total_bytes / 2**30:.3g} GiB"


def labelled(name: str, labels: Sequence[str]) -> str:
    """`digits@3 (canary)`"""
    return f"{name} ({', '.join(labels)})" if labels else name


def percent(part: float) -> str:
    """`98.5 %`; never 100 % for less than all."""
    return f"{min(part, 0.999) if part < 1 else part:.1%}".replace("%", " %")


def count_of(number: int, noun: str) -> str:
    """`1 slot`, `2 slots`"""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def short_uuid(uuid: str) -> str:
    """As much of a uuid as tells GPUs apart: its kind and the first block."""
    for prefix in _UUID_PREFIXES:
        if uuid.startswith(prefix):
            return prefix + uuid.removeprefix(prefix).split("-")[0][:8]
    return uuid[:12]

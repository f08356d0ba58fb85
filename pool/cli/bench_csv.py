"""A benchmark as a table for other programs: a line a point."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pool.errors import PoolError

__all__ = ["write_csv"]


def write_csv(path: Path, about: Mapping[str, Any], points: Sequence[Mapping[str, Any]]) -> None:
    """`about`: what all of them share. Points are as `values()` of a report has them; what is nested in one is a column
    of its own, `latency_ms.p99` say. What was not measured is empty. Raises `PoolError`."""
    lines = [{**about, **_flat(point)} for point in points]
    columns = list(dict.fromkeys(name for line in lines for name in line))
    try:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, columns, restval="")
            writer.writeheader()
            writer.writerows(lines)
    except OSError as error:
        raise PoolError(f"--csv {path}: {error.strerror or error}") from None


def _flat(values: Mapping[str, Any], before: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{before}{name}."))
        else:
            flat[f"{before}{name}"] = value
    return flat

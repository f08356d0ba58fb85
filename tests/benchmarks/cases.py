"""The models that are measured, as every side sees them: one input, one output, a row a job.

A case is written to a file for the processes that serve it; nothing here imports TensorFlow or the pool.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["Array", "Case", "WrongAnswer", "rows_of"]

Array = np.ndarray[Any, Any]

DISTINCT_ROWS = 64
"""So many different rows take turns: a single one would stay in the processor's cache, and hide answers mixed up."""
SOURCES = (
    b"import os\n\ndef main():\n    for name in os.listdir('.'):\n        print(name)\n",
    b'#include <stdio.h>\nint main(void) { printf("%d\\n", 1); return 0; }\n',
    b'package main\nimport "fmt"\nfunc main() { fmt.Println("hello") }\n',
    b"SELECT name, count(*) FROM jobs WHERE state = 'QUEUED' GROUP BY name;\n",
)


class WrongAnswer(Exception):
    """Whoever gave it is not measured any further: its speed is worth nothing."""


@dataclass(frozen=True)
class Case:
    """`row`: the shape of a row, past the axis of rows; `max_batch`: rows that run together at most, on every side."""

    name: str
    path: str
    signature: str
    input: str
    output: str
    dtype: str
    row: tuple[int, ...]
    max_batch: int

    @staticmethod
    def read(path: Path) -> "Case":
        fields = json.loads(path.read_text())
        return Case(**{**fields, "row": tuple(fields["row"])})

    def write(self, folder: Path) -> Path:
        path = folder / f"{self.name}.json"
        path.write_text(json.dumps(asdict(self)))
        return path

    def check(self, answer: Array, expected: Array) -> None:
        """Raises `WrongAnswer`. The sums of a batch may differ in the last bits from those of a row alone."""
        if answer.shape != expected.shape or not np.allclose(answer, expected, rtol=1e-3, atol=1e-5):
            raise WrongAnswer(f"{self.name}: {answer.ravel()[:4]} of {answer.shape}, expected {expected.ravel()[:4]}")


def rows_of(case: Case, count: int = DISTINCT_ROWS, seed: int = 7) -> list[Array]:
    """Arrays of one row each, [1, *row], the same for the same seed."""
    random = np.random.default_rng(seed)
    if case.dtype == "string":
        return [_text(random) for _ in range(count)]
    return [random.random((1, *case.row), np.float32) for _ in range(count)]


def _text(random: np.random.Generator) -> Array:
    """A few hundred bytes of source code."""
    chosen: Sequence[int] = random.integers(0, len(SOURCES), 6).tolist()
    text = np.empty(1, object)
    text[0] = b"".join(SOURCES[index] for index in chosen)
    return text

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
RELATIVE, ABSOLUTE = 1e-3, 1e-5
"""So far an answer may be off: the sums of a batch differ in their last bits from those of a row alone."""
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
        """Raises `WrongAnswer`."""
        if answer.shape != expected.shape or not _same(answer, expected):
            raise WrongAnswer(f"{self.name}: {answer.ravel()[:4]} of {answer.shape}, expected {expected.ravel()[:4]}")

    def check_told_apart(self, expected: Sequence[Array]) -> None:
        """Raises `WrongAnswer` where the answers to two rows pass for each other: mixed up, nobody would notice."""
        for number, answer in enumerate(expected):
            for other in range(number):
                if _same(answer, expected[other]):
                    raise WrongAnswer(f"{self.name}: rows {other} and {number} have the same answer")

    def check_unordered(self, raw: Sequence[bytes], expected: Sequence[Array]) -> None:
        """Answers whose rows are not known, to rows that took turns. Raises `WrongAnswer`.

        Each must be the answer to some row, and they must be the answers to most of the rows that had their turn:
        whoever answers all of them from one of them is found out.
        """
        right = np.stack([answer.ravel() for answer in expected])
        seen = set()
        for answer in raw:
            if len(answer) != expected[0].nbytes:
                raise WrongAnswer(f"{self.name}: {len(answer)} bytes, expected {expected[0].nbytes}")
            read = np.frombuffer(answer, right.dtype)
            found = np.flatnonzero(np.isclose(read, right, rtol=RELATIVE, atol=ABSOLUTE).all(axis=1))
            if not len(found):
                raise WrongAnswer(f"{self.name}: {read[:4]} is the answer to no row")
            seen.add(int(found[0]))
        if len(seen) < min(len(raw), len(expected)) / 2:
            raise WrongAnswer(f"{self.name}: {len(raw)} answers to rows that took turns, and only {len(seen)} differ")


def rows_of(case: Case, count: int = DISTINCT_ROWS, seed: int = 7) -> list[Array]:
    """Arrays of one row each, [1, *row], the same for the same seed.

    Each is brighter than the one before: means of noise alone would be the same.
    """
    random = np.random.default_rng(seed)
    if case.dtype == "string":
        return [_text(random, number) for number in range(count)]
    return [random.random((1, *case.row), np.float32) * np.float32(1 + number / 8) for number in range(count)]


def _text(random: np.random.Generator, number: int) -> Array:
    """A few hundred bytes of source code."""
    chosen: Sequence[int] = random.integers(0, len(SOURCES), 6).tolist()
    word = random.bytes(4 + number % 5).hex().encode()
    text = np.empty(1, object)
    text[0] = b"".join(SOURCES[index] for index in chosen) + b"# " + b" ".join([word] * (1 + number % 7)) + b"\n"
    return text


def _same(answer: Array, expected: Array) -> bool:
    return np.allclose(answer, expected, rtol=RELATIVE, atol=ABSOLUTE)

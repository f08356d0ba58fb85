"""From the SIGKILL of a worker to its slot's next answer, against what a fresh process takes to its first."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.line_process import LineProcess, python_module
from benchmarks.turns import Turns

__all__ = ["first_answer", "fresh_import", "fresh_load", "killed"]

FRESH_S = 300.0


def killed(pool: Any, turns: Turns) -> Callable[[], float]:
    """`pool` has one worker. Seconds; the answer is checked."""
    case = turns.case

    def turn() -> float:
        (slot,) = pool.status()["slots"]
        began = time.perf_counter()
        os.kill(slot["pid"], signal.SIGKILL)
        answer = pool.run(case.name, turns.rows[0], signature=case.signature, timeout=FRESH_S)[case.output]
        taken = time.perf_counter() - began
        case.check(answer, turns.expected[0])
        (after,) = pool.status()["slots"]
        assert after["incarnation"] == slot["incarnation"] + 1
        return taken

    return turn


def first_answer(argv: Sequence[str], log: Path) -> dict[str, float]:
    """What a process of its own says first, and as `total` the seconds from its start until then.

    A worker that comes up is not waited for until it has ended, so this is not either: TensorFlow takes its time to go.
    Raises `Ended`.
    """
    began = time.perf_counter()
    process = LineProcess(argv, log, {"CUDA_VISIBLE_DEVICES": ""})
    try:
        told: dict[str, float] = process.answer(FRESH_S)
        return {**told, "total": time.perf_counter() - began}
    finally:
        process.end()


def fresh_import(folder: Path) -> dict[str, float]:
    return first_answer(python_module("benchmarks.fresh", "import-pool"), folder / "fresh.log")


def fresh_load(case: Case, folder: Path) -> dict[str, float]:
    """As a worker imports and loads, to the first answer."""
    argv = python_module("benchmarks.fresh", "load", str(folder / f"{case.name}.json"))
    return first_answer(argv, folder / "fresh.log")

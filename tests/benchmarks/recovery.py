"""From the SIGKILL of a worker to its slot's next answer, against what a fresh process takes to come as far."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.cases import Case
from benchmarks.line_process import environment, last_line, python_module
from benchmarks.turns import Turns

__all__ = ["fresh", "killed"]

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


def fresh(what: Sequence[str], log: Path) -> dict[str, float]:
    """A process of its own from its start to its end, as `total`, and what it says of itself. Seconds."""
    began = time.perf_counter()
    with log.open("ab") as stderr:
        done = subprocess.run(
            python_module("benchmarks.fresh", *what),
            stdout=subprocess.PIPE,
            stderr=stderr,
            env=environment({"CUDA_VISIBLE_DEVICES": ""}),
            timeout=FRESH_S,
            check=False,
        )
    taken = time.perf_counter() - began
    if done.returncode:
        raise RuntimeError(f"benchmarks.fresh {' '.join(what)}: {last_line(log)}")
    told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {**told, "total": taken}


def fresh_load(case: Case, folder: Path) -> dict[str, float]:
    """As a worker imports and loads."""
    return fresh(["load", str(folder / f"{case.name}.json")], folder / "fresh.log")

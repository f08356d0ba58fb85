"""The outcomes as they were recorded, a line for each program, and what is another one today."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from golden.kinds import KINDS, program_of
from golden.outcome import Outcome
from golden.program import Program
from golden.twist import AS_IT_IS, Twist
from golden.world import play

__all__ = ["FILE", "NAMES", "compared", "read", "record"]

FILE = Path(__file__).parent / "runs.json"
NAMES = tuple(f"{kind} {seed}" for kind, (_, count) in KINDS.items() for seed in range(count))


def mark(program: Program) -> int:
    """Another one for another program. Without what the core decides by, which may have other settings some day."""
    told = (program.placement, program.lanes, sorted(program.models.items()), program.jobs, program.moves)
    return zlib.crc32(repr(told).encode())


def read() -> dict[str, tuple[int, Outcome]]:
    """The mark of each program, and its outcome."""
    kept = json.loads(FILE.read_text())
    return {
        name: (each["program"], Outcome(each["answers"], each["attempts"], each["orders"], each["shares"]))
        for name, each in kept.items()
    }


def compared(names: Iterable[str], twist: Twist = AS_IT_IS) -> Iterator[str]:
    """What is not as it was recorded."""
    kept = read()
    for name in names:
        program = program_of(name)
        if name not in kept:
            yield f"{name}: was not recorded"
            continue
        was, outcome = kept[name]
        if was != mark(program):
            yield f"{name}: is another program than the one that was recorded"
            continue
        try:
            now = play(program, twist)
        except Exception as error:
            yield f"{name}: {type(error).__name__}: {error}"
            continue
        yield from (f"{name}: {difference}" for difference in outcome.differences(now))


def record() -> None:
    lines = []
    for name in NAMES:
        program = program_of(name)
        outcome = play(program)
        kept = {
            "program": mark(program),
            "answers": outcome.answers,
            "attempts": outcome.attempts,
            "orders": outcome.orders,
            "shares": outcome.shares,
        }
        lines.append(f"{json.dumps(name)}: {json.dumps(kept, separators=(',', ':'))}")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")

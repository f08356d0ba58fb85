"""`python -m walks.hunt WALK …` runs walks until one fails, and prints as JSON which, and at which assertion.

`program 7` is 60 steps, `walk 7` 250, `changing 7` as many while the configuration changes, and on `sharing 7` clients
and models share what there is; `scene 7` is told by hand. The core's own books are not looked at: what is outside has
to notice.
"""

from __future__ import annotations

import json
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pool
from walks.programs import program_of, run
from walks.scenes import play
from walks.sharing import share

__all__ = ["KINDS", "Failure", "hunt", "run_walk"]

TESTS = str(Path(__file__).parents[1])
KINDS: Mapping[str, Callable[[int], Counter[str]]] = {
    "program": lambda seed: run(program_of(seed, 60), validates=False),
    "walk": lambda seed: run(program_of(seed, 250), validates=False),
    "changing": lambda seed: run(program_of(seed, 250, changing=True), validates=False),
    "sharing": share,
    "scene": play,
}


@dataclass(frozen=True, slots=True)
class Failure:
    """`promised`: a promise is broken; else the core raised something by itself, or the ledger stumbled."""

    walk: str
    promised: bool
    where: str
    what: str


def run_walk(walk: str) -> Counter[str]:
    kind, seed = walk.split()
    return KINDS[kind](int(seed))


def hunt(walks: Iterable[str]) -> Failure | None:
    for walk in walks:
        try:
            run_walk(walk)
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(frame.filename).name}:{frame.lineno} {frame.name}"
            promised = isinstance(error, AssertionError) and frame.filename.startswith(TESTS)
            what = str(error) or frame.line or ""
            return Failure(walk, promised, where, f"{type(error).__name__}: {what}"[:300])
    return None


if __name__ == "__main__":
    print(pool.__file__)  # noqa: T201  # whose it was
    found = hunt(sys.argv[1:])
    print(json.dumps(found and asdict(found)))  # noqa: T201

"""Random programs against an independent ledger; and the core with a promise broken, which they must notice."""

import os
import random
from collections import Counter
from collections.abc import Callable

import pytest

from core.mutants import MUTANTS, core, programs
from core.scenes import SCENES
from core.walk import walk
from support.mutants import Mutant, killer

WALKS = int(os.environ.get("WALKS", "40"))
SEEN = {  # how often at least, in sixty walks: a walk that meets nothing shows nothing
    "answered": 1000,
    "shared": 100,
    "reruns": 50,
    "suspects": 50,
    "hung": 10,
    "cancelled": 500,
    "released": 500,
    "lies": 100,
    "DeadlineExceeded": 500,
    "ModelFailed": 10,
    "Stale": 10,
    "Quarantined": 10,
    "WorkerLost": 10,
    "refused Overloaded": 500,
    "refused ModelNotFound": 20,
    "models gone": 30,
    "policies": 100,
    "pinned": 300,
}


def test_walks_keep_every_promise() -> None:
    begin = int(os.environ.get("WALKS_SEED", "0")) or random.randrange(1 << 30)
    print(f"WALKS_SEED={begin}")
    plain, seen = core(), Counter[str]()
    for seed in range(begin, begin + WALKS):
        seen += walk(plain, seed)
    few = {name: count for name, count in SEEN.items() if seen[name] < count * WALKS / 60 / 2}
    assert not few, f"the premise: all of it was met; {seen}"


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_a_scene(scene: Callable[[object], None]) -> None:
    scene(core())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.promise)
def test_a_broken_promise_is_noticed(mutant: Mutant) -> None:
    assert killer(programs(mutant))

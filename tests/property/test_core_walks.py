"""The same steps by chance alone, and hundreds of them: more work and more deaths than a short program has room for."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from walks.programs import Program, Step, program_of, run
from walks.scenes import SCENES, play
from walks.sharing import share

TESTS = Path(__file__).parents[1]
PROGRAMS = "47947b113bc08a7f"
"""The digest of some programs, which are the same on every machine as long as their tables are."""
STEPS = 250
SEEDS = range(16)
MORE_SEEDS = range(16, 96)
"""No mutant needs them: they look elsewhere."""
CHANGING_SEEDS = range(24)
SHARING_SEEDS = range(6)
FLOOR = 0.5
"""Of all answers so many are results."""


@cache
def walk(seed: int, *, changing: bool) -> Counter[str]:
    return run(program_of(seed, STEPS, changing=changing))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_core_keeps_its_promises_on_a_long_walk(seed: int) -> None:
    walk(seed, changing=False)


@pytest.mark.simulation
@pytest.mark.parametrize("seed", MORE_SEEDS)
def test_the_core_keeps_its_promises_on_another_long_walk(seed: int) -> None:
    walk(seed, changing=False)


@pytest.mark.parametrize("seed", CHANGING_SEEDS)
def test_the_core_keeps_its_promises_on_a_walk_on_which_its_policy_changes(seed: int) -> None:
    walk(seed, changing=True)


@pytest.mark.parametrize(
    ("seed", "steps", "changing"),
    [
        (8810024, 60, False),  # a chunk that may not be cut any more waits for what is out of it
        (7711586, 60, False),  # two slots are free, and nobody knows yet which is the home of a model with state
        (7712663, 250, True),  # a client is let out of a slot that was down for less than a turn
        (7712374, 250, True),  # the version that a job wants is in a slot that was given up, not in the model's home
        (8810320, 250, False),  # more jobs come from a chunk than it had
        (7712423, 250, False),  # the pool ends before a chunk's deadline
        (9300441, 250, False),  # a model's last jobs fail as it is unloaded, and its line is to be looked at
        (9400427, 250, True),  # a slot gets its first models while jobs wait that are pinned to its device
        (20000454, 250, False),  # jobs are pinned to a device before the model's home comes there, and after
        (20000325, 250, True),  # the configuration asks for a proof while joined rows are out
        (20000206, 250, True),  # and while jobs gather company
        (9400345, 250, True),  # a worker dies with pieces of a job that are of no use any more, and with all of it
        (9300076, 250, False),  # a model is served again that was forgotten while its worker was leaving
        (30002782, 250, False),  # rows are compared in a worker that was READY only after it was told to stop
        (30001092, 250, True),  # rows of a chunk are fed one by one, and there is no memory even so
        (9200954, 60, False),  # the home of a model that nobody has seen yet is kept for a suspect
    ],
)
def test_walks_that_once_failed_are_right(seed: int, steps: int, changing: bool) -> None:
    """In some of them the core was wrong; the others were mistaken in what they asked of it."""
    run(program_of(seed, steps, changing=changing))


def test_a_job_may_be_refused_while_its_slot_has_failed_that_is_restarted_in_the_same_turn() -> None:
    assert run(program_of(428, 60))["worker-lost"]


@pytest.mark.parametrize("changing", [False, True])
def test_most_answers_on_walks_are_results(changing: bool) -> None:
    """Those that have run are not run again."""
    seeds = CHANGING_SEEDS if changing else SEEDS
    answered = sum((walk(seed, changing=changing) for seed in seeds), Counter[str]())
    done, all_of_them = answered["done"], answered.total()
    print(f"{len(seeds)} walks: {done} of {all_of_them} answers are results; {dict(answered)}")  # noqa: T201
    assert all_of_them > 100 * len(seeds)
    assert done >= FLOOR * all_of_them


@pytest.mark.parametrize("seed", SHARING_SEEDS)
def test_clients_and_models_have_their_shares(seed: int) -> None:
    assert share(seed)["done"] > 200


@pytest.mark.parametrize("number", range(len(SCENES)), ids=lambda number: SCENES[number].__name__)
def test_a_promise_is_kept_in_a_scene(number: int) -> None:
    play(number)


@pytest.mark.parametrize("seed", range(8))
def test_a_worker_may_be_told_to_stop_before_it_is_spawned(seed: int) -> None:
    """Two are due in one turn; the first cannot be spawned, the last job has no hope then, and all wind down."""
    job: dict[str, Any] = {"client": b"a", "model": "pure", "timeout_s": 300.0, "rows": 1, "priority": 0}
    steps: tuple[Step, ...] = (
        ("all_come_up", {"lanes": 1}),
        ("dies", {"pick": 0}),
        ("dies", {"pick": 0}),
        ("submit", {**job, "device": "slot:0", "size_bytes": 1, "version": None}),
        ("spawning_fails", {"fails": True}),
        ("a_stop_is_asked", {}),
        ("the_pool_sleeps", {"seconds": 20.0}),
    )
    assert run(Program(placement=1, policy=1, seed=seed, steps=steps)) == {"pool-stopping": 1}


def test_programs_and_what_comes_of_them_are_the_same_in_every_process() -> None:
    """Whatever the order of sets of names is there, and whatever is imported."""
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        env = {
            **os.environ,
            "PYTHONHASHSEED": hash_seed,
            "PYTHONPATH": os.pathsep.join((str(TESTS.parent), str(TESTS))),
        }
        walks = [f"program {seed}" for seed in range(12)]
        done = subprocess.run(
            [sys.executable, "-m", "walks.digest", *walks], env=env, capture_output=True, text=True, check=True
        )
        digests.add(done.stdout)
        print(hash_seed, done.stdout)  # noqa: T201
    assert len(digests) == 1
    assert f"programs {PROGRAMS}" in digests.pop(), "other programs than were pinned: write their digest down anew"


@pytest.mark.endurance
@pytest.mark.timeout(3600)
def test_the_core_keeps_its_promises_on_many_walks() -> None:
    for seed in range(1000, 4000):
        print(f"seed {seed}")  # noqa: T201  # the last one that is printed is the one to run again
        run(program_of(seed, 400))

"""The same steps by chance alone, and hundreds of them: more work and more deaths than a short program has room for."""

from __future__ import annotations

from collections import Counter
from functools import cache

import pytest
from walks.programs import program_of, run
from walks.sharing import share

STEPS = 250
SEEDS = range(96)
CHANGING_SEEDS = range(24)
SHARING_SEEDS = range(6)
FLOOR = 0.5
"""Of all answers so many are results."""


@cache
def walk(seed: int, *, changing: bool = False) -> Counter[str]:
    return run(program_of(seed, STEPS, changing=changing))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_core_keeps_its_promises_on_a_long_walk(seed: int) -> None:
    walk(seed)


@pytest.mark.parametrize("seed", CHANGING_SEEDS)
def test_the_core_keeps_its_promises_on_a_walk_on_which_its_policy_changes(seed: int) -> None:
    walk(seed, changing=True)


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
    assert share(seed)["done"] > 300


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_core_keeps_its_promises_on_many_walks() -> None:
    for seed in range(1000, 4000):
        print(f"seed {seed}")  # noqa: T201  # the last one that is printed is the one to run again
        run(program_of(seed, 400))

"""Whatever workers, clients and time do in whatever order: the core keeps its promises.

Programs that are the same on every machine, and then those that Hypothesis makes of the same tables. What it makes
depends on its version and on the constants in what is imported; it is here to look elsewhere, and to shorten.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from walks.programs import LANES, Program, Step, program_of, run, step
from walks.setting import PLACEMENTS, POLICIES

STEPS = 60
SEEDS = range(60)
MORE_SEEDS = range(60, 140)
"""One mutant is found by these alone."""
EXAMPLES = 90
FLOOR = 0.5
"""Of all answers so many are results: a program whose jobs are refused has nothing that could go wrong."""
ENOUGH = 1000
"""Answers, for a share of them to mean anything."""


@pytest.mark.parametrize(
    "begin",
    [
        *range(SEEDS.start, SEEDS.stop, 20),
        *(pytest.param(begin, marks=pytest.mark.simulation) for begin in range(MORE_SEEDS.start, MORE_SEEDS.stop, 20)),
    ],
)
def test_the_core_keeps_its_promises(begin: int) -> None:
    answered: Counter[str] = Counter()
    for seed in range(begin, begin + 20):
        print(f"program {seed}")  # noqa: T201  # the last one that is printed is the one to run again
        answered += run(program_of(seed, STEPS))
    check_floor(f"programs {begin} to {begin + 19}", answered, enough=ENOUGH // 2)


def steps(placement: int) -> st.SearchStrategy[Step]:
    @st.composite
    def one(draw: st.DrawFn) -> Step:
        return step(lambda table: draw(st.sampled_from(table)), placement)

    return one()


@st.composite
def programs(draw: st.DrawFn) -> Program:
    placement = draw(st.integers(0, len(PLACEMENTS) - 1))
    policy = draw(st.integers(0, len(POLICIES) - 1))
    fewest = draw(st.sampled_from((0, *(STEPS // 2,) * 9)))  # 0, so that what fails can become short
    drawn = draw(st.lists(steps(placement), min_size=fewest, max_size=STEPS))
    begins: dict[str, Any] = {"lanes": draw(st.sampled_from(LANES))}
    return Program(placement, policy, draw(st.integers(0, 99)), (("all_come_up", begins), *drawn))


def test_the_core_keeps_its_promises_wherever_hypothesis_looks() -> None:
    answered: Counter[str] = Counter()

    @settings(
        deadline=None,
        derandomize=True,
        database=None,
        max_examples=EXAMPLES,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )
    @given(program=programs())
    def look(program: Program) -> None:
        answered.update(run(program))

    look()
    check_floor(f"{EXAMPLES} examples", answered, enough=ENOUGH)


def check_floor(what: str, answered: Counter[str], enough: int) -> None:
    done, all_of_them = answered["done"], answered.total()
    print(f"{what}: {done} of {all_of_them} answers are results; {dict(answered)}")  # noqa: T201
    assert all_of_them >= enough
    assert done >= FLOOR * all_of_them

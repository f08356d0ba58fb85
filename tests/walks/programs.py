"""Programs: what happens to a core, step by step, as plain data that is made of choices alone.

A choice is one of a table, whoever makes it: `random.Random(seed)`, which is the same on every machine, or Hypothesis,
which can make a program shorter.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pool.wire.faults import Fault
from pool.wire.worker_messages import Phase
from simulation.words import Seen
from walks.client_moves import ClientMoves
from walks.setting import (
    CLIENTS,
    FORMS,
    OTHERS,
    OUTPUTS,
    PLACEMENTS,
    POLICIES,
    PRIORITIES,
    ROWS,
    SETS,
    TIMEOUTS,
    VERSIONS,
    mostly,
)
from walks.worker_moves import WorkerMoves

__all__ = ["Choose", "Everything", "Program", "Step", "program_of", "run", "step"]

Choose = Callable[[Sequence[Any]], Any]
Step = tuple[str, dict[str, Any]]


class Everything(ClientMoves, WorkerMoves):
    pass


@dataclass(frozen=True)
class Program:
    """`placement`, `policy`: their numbers in `setting`. `seed`: of what the core itself leaves to chance."""

    placement: int
    policy: int
    seed: int
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Several:
    """A tuple of so many choices at most."""

    table: Sequence[Any]
    most: int


PICK = range(60)
LANES = (1, 1, 2, 2, 3)
PAUSES_S = (0.0, 0.01, 0.01, 0.1, 0.3, 0.3, 1.0, 3.0)
DEVICES = mostly((None, None, None, None, 0, 1, 2, 3, 4, 5), ("nowhere",), 60)
RARELY_BAD = mostly((None,), (0, 1, 2, 7), 12)
MEMBERS = Several((1, 1, 1, 1, 2, 5, 20), 12)
NAMES = "NAMES"  # the models of the placement, and seldom another one
Table = Sequence[Any] | Several | str

# How often, what, and the tables of its arguments.
MOVES: tuple[tuple[int, str, Mapping[str, Table]], ...] = (
    (
        60,
        "submit",
        {
            "client": CLIENTS,
            "model": NAMES,
            "timeout_s": TIMEOUTS,
            "rows": ROWS,
            "priority": PRIORITIES,
            "device": DEVICES,
            "size_bytes": range(61),
            "version": VERSIONS,
        },
    ),
    (
        40,
        "submit_many",
        {
            "client": CLIENTS,
            "model": NAMES,
            "count": range(2, 9),
            "rows": ROWS,
            "form": FORMS,
            "outputs": OUTPUTS,
            "device": DEVICES,
        },
    ),
    (
        40,
        "submit_a_pack",
        {
            "client": CLIENTS,
            "model": NAMES,
            "members": MEMBERS,
            "timeout_s": TIMEOUTS,
            "priority": PRIORITIES,
            "device": DEVICES,
            "form": FORMS,
            "outputs": OUTPUTS,
            "attempts": mostly((0,), (1, 2), 20),
            "kills": RARELY_BAD,
            "guilty": RARELY_BAD,
            "version": VERSIONS,
        },
    ),
    (
        5,
        "submit_what_a_former_pool_may_have_started",
        {"client": CLIENTS, "model": NAMES, "rows": ROWS, "attempts": (0, 0, 1, 1, 2, 3)},
    ),
    (
        6,
        "submit_poison",
        {
            "client": CLIENTS,
            "model": NAMES,
            "count": range(2, 7),
            "device": DEVICES,
            "guilty": (True, False),
        },
    ),
    (3, "use_a_number_again", {"pick": PICK, "model": NAMES, "timeout_s": TIMEOUTS}),
    (5, "cancel", {"pick": PICK}),
    (8, "cancel_what_waits", {"pick": PICK}),
    (3, "cancel_a_whole_pack", {"pick": PICK}),
    (8, "cancel_a_member", {"pick": PICK, "member": PICK}),
    (2, "client_goes", {"client": CLIENTS}),
    (2, "somebody_asks", {"about": ("", "1", "7", "40", "-1", "x", "9" * 50)}),
    (40, "all_come_up", {"lanes": LANES}),
    (30, "the_dead_are_followed", {"seconds": PAUSES_S, "lanes": LANES}),
    (5, "says_hello", {"pick": PICK}),
    (5, "says_ready", {"pick": PICK, "lanes": LANES}),
    (5, "beats", {"pick": PICK, "phase": tuple(Phase)}),
    (10, "stands_by", {"pick": PICK}),
    (60, "answers", {"pick": PICK}),
    (110, "answers_many", {"count": range(1, 13), "seconds": (0.0, 0.0, 0.01, 0.1, 0.3)}),
    (12, "does_as_it_was_told", {"pick": PICK}),
    (20, "rows_are_compared", {"pick": PICK, "count": (1, 20, 40, 80, 80), "differs": mostly((False,), (True,), 4)}),
    (6, "the_run_fails", {"pick": PICK, "fault": (Fault.MODEL_FAILED, Fault.OUT_OF_MEMORY)}),
    (3, "rows_differ", {"pick": PICK}),
    (4, "each_part_ends_in_its_own_way", {"pick": PICK, "seed": range(1000)}),
    (2, "answers_a_wrong_number_of_parts", {"pick": PICK, "more": (-100, -1, 1, 2)}),
    (4, "dies", {"pick": PICK}),
    (12, "dies_while_it_runs", {"pick": PICK}),
    (1, "dies_for_good", {"pick": PICK}),
    (4, "cannot_be_reached", {"pick": PICK}),
    (3, "is_stuck_in_the_kernel", {"pick": PICK}),
    (1, "says_ready_without_its_models", {"pick": PICK}),
    (3, "spawning_fails", {"fails": mostly((False,), (True,), 4)}),
    (6, "says_it_again", {"pick": PICK}),
    (6, "answers_too_late", {"pick": PICK}),
    (6, "answers_for_another", {"pick": PICK, "before": (-1, 1, 2)}),
    (3, "answers_what_it_does_not_have", {"pick": PICK, "batch": range(100)}),
    (
        6,
        "somebody_else_speaks",
        {"slot": range(-1, 6), "incarnation": range(7), "batch": range(100), "which": range(11)},
    ),
    (40, "time_passes", {"seconds": mostly(PAUSES_S, (11.0, 70.0), 16)}),
    (2, "the_pool_sleeps", {"seconds": (0.3, 1.0, 20.0, 2000.0)}),
    (8, "a_restart_is_asked", {"slot": range(-1, 5), "sparing": (False, True)}),
    (4, "a_drain_is_asked", {"slot": range(-1, 5)}),
    (30, "all_that_is_down_is_restarted", {}),
    (4, "devices_have_room_for_two", {"has_room": (True, True, False)}),
    (3, "memory_is_measured", {"slot": range(4), "incarnation": range(5), "resident_bytes": (0, 1 << 29, 2 << 30)}),
    (2, "a_slot_is_to_have_other_models", {"pick": PICK, "models": SETS}),
    (8, "another_version_is_to_be_served", {"model": ("pure", "counter"), "version": (1, 2, 3)}),
)
CHANGE: tuple[int, str, Mapping[str, Table]] = (15, "the_policy_changes", {"other": OTHERS})


def _flat(*more: tuple[int, str, Mapping[str, Table]]) -> tuple[tuple[str, Mapping[str, Table]], ...]:
    return tuple((name, tables) for often, name, tables in (*MOVES, *more) for _ in range(often))


STEADY, CHANGING = _flat(), _flat(CHANGE)
MODELS_OF = tuple(
    mostly(tuple(name for models in placement for name in models), ("padded", "counter", "unknown"), 25)
    for placement in PLACEMENTS
)


def step(choose: Choose, placement: int, *, changing: bool = False) -> Step:
    name, tables = choose(CHANGING if changing else STEADY)
    return name, {argument: _chosen(choose, table, placement) for argument, table in tables.items()}


def _chosen(choose: Choose, table: Table, placement: int) -> Any:
    if isinstance(table, Several):
        return tuple([choose(table.table) for _ in range(choose(range(1, table.most + 1)))])
    return choose(MODELS_OF[placement] if table is NAMES else table)


def program_of(seed: int, steps: int, *, changing: bool = False) -> Program:
    """The same for ever, as long as the tables are. One in ten is told to stop before its end."""
    rng = random.Random(seed)
    choose = rng.choice
    placement = seed % len(PLACEMENTS)
    policy = seed // len(PLACEMENTS) % len(POLICIES)
    begins: Step = ("all_come_up", {"lanes": choose(LANES)})
    chosen = [begins, *(step(choose, placement, changing=changing) for _ in range(steps))]
    if rng.random() < 0.1:
        chosen.insert(rng.randrange(3 * steps // 4, steps), ("a_stop_is_asked", {}))
    return Program(placement, policy, seed, tuple(chosen))


def run(
    program: Program, *, validates: bool = True, watch: Callable[[Seen], None] = lambda _seen: None
) -> Counter[str]:
    """Checks the promises after each step and at the end. How many jobs ended in which way.

    Where the seed is odd, jobs that are submitted one after another come in one burst.
    `validates`: the core's own books are checked too. `watch` is told of each thing that the core does.
    """
    outside = Everything(program.placement, program.policy, program.seed, validates=validates, watch=watch)
    for together, steps in groupby(program.steps, lambda step: program.seed % 2 == 1 and step[0].startswith("submit")):
        with outside.core.burst() if together else nullcontext():
            for name, arguments in steps:
                getattr(outside, name)(**arguments)
                outside.check()
    outside.end()
    return outside.core.answered

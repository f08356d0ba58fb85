"""The core's outcomes are those that were recorded; and the record tells what matters, and nothing else."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from golden.kinds import KINDS, program_of
from golden.outcome import DONE, LETTERS, MURKY, UNANSWERED, WRONG, Outcome
from golden.patches import BROKEN, OTHERWISE, Patch, differences
from golden.record import NAMES, compared, read
from golden.twist import Twist

LONG = {"shared"}
"""Runs that take as long as all others together."""
ANEW = "if it is meant to be so: python tests/golden --record, and say why in the commit"


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.golden) if kind in LONG else kind for kind in KINDS]
)
def test_outcomes_are_those_that_were_recorded(kind: str) -> None:
    found = list(compared(name for name in NAMES if name.split()[0] == kind))
    assert not found, "\n".join([*found[:20], f"{len(found)} in all; {ANEW}"])


def test_the_record_has_something_of_everything() -> None:
    """Else it would hold whatever the core did."""
    kept = read()
    assert tuple(kept) == NAMES
    answers = Counter("".join(outcome.answers for name, (_, outcome) in kept.items() if "shared" not in name))
    attempts = Counter("".join(outcome.attempts for _, outcome in kept.values()))
    assert not answers[WRONG]
    assert not answers[UNANSWERED]
    assert min(answers[letter] for letter in LETTERS.values()) >= 50, answers
    assert answers[DONE] >= 0.6 * answers.total()
    assert attempts[MURKY] <= 0.05 * attempts.total()
    assert sum(count for number, count in attempts.items() if number in "2345") >= 200, attempts
    orders = [order for _, outcome in kept.values() for order in outcome.orders.values()]
    assert sum(len(order) > 3 for order in orders) >= 150
    assert sum(list(order) != sorted(order) for order in orders) >= 10, "priorities"
    shares = [share for _, outcome in kept.values() for share in outcome.shares.values()]
    assert len(shares) >= 50
    assert sum(0.05 < share < 0.95 for share in shares) >= 40


@pytest.mark.golden
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "twist",
    [Twist(seed=7), Twist(batch=0.5), Twist(batch=2.0), Twist(speed=1.7), Twist(uneven_boot=True), Twist(burst=True)],
    ids=["another seed", "small batches", "large batches", "slower models", "others up first", "bursts"],
)
def test_what_may_be_otherwise_changes_no_outcome(twist: Twist) -> None:
    assert not list(compared(NAMES, twist))


@pytest.mark.golden
@pytest.mark.timeout(600)
@pytest.mark.parametrize("patch", OTHERWISE, ids=lambda patch: patch.name)
def test_what_the_core_may_do_otherwise_changes_no_outcome(patch: Patch, tmp_path: Path) -> None:
    assert not differences(patch, tmp_path)


@pytest.mark.golden
@pytest.mark.timeout(600)
@pytest.mark.parametrize("patch", BROKEN, ids=lambda patch: patch.name)
def test_a_broken_promise_changes_an_outcome(patch: Patch, tmp_path: Path) -> None:
    assert differences(patch, tmp_path)


OUTCOME = Outcome("ddq", "11.", {"c0 counter": [1, 3]}, {"a0 a": 0.5, "a1 a": 0.5})


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ({"answers": "ddw"}, "answer of job 3: w, not q"),
        ({"answers": "dd"}, "2 jobs, not 3"),
        ({"attempts": "12."}, "attempts of job 2: 2, not 1"),
        ({"orders": {"c0 counter": [3, 1]}}, "order of c0 counter: [3, 1], not [1, 3]"),
        ({"orders": {}}, "order of c0 counter: [], not [1, 3]"),
        ({"shares": {"a0 a": 0.47, "a1 a": 0.53}}, "share of a0 a: 0.470, not 0.500"),
    ],
)
def test_another_outcome_is_named(other: dict[str, object], what: str) -> None:
    assert what in OUTCOME.differences(replace(OUTCOME, **other))  # type: ignore[arg-type]


@pytest.mark.parametrize("other", [{"attempts": "113"}, {"shares": {"a0 a": 0.49, "a1 a": 0.51}}])
def test_what_is_no_promise_is_not_compared(other: dict[str, object]) -> None:
    assert not OUTCOME.differences(replace(OUTCOME, **other))  # type: ignore[arg-type]


def test_a_program_is_the_same_each_time() -> None:
    assert repr(program_of("lone 7")) == repr(program_of("lone 7"))
    assert repr(program_of("lone 7")) != repr(program_of("lone 8"))

"""How many rows are tried after memory ran out: down by halves, up by and by, and back to what has fitted."""

import pytest

from pool.core.policy import ModelPolicy
from pool.core.queue.keys import Key
from pool.core.queue.models import FIRST_PATIENCE_S, LONGEST_PATIENCE_S, Model


def key_of(max_batch: int, *allowed: int) -> Key:
    policy = ModelPolicy(max_batch=max_batch, allowed_batch_sizes=allowed)
    return Model("m", policy).line(None).key(None, None, b"form")


def run(key: Key, room: int, seconds: float, now: float) -> tuple[int, float]:
    """Full batches of 0.1 s for so long; how many found no memory, and when it is then."""
    failures, ends = 0, now + seconds
    while now < ends:
        rows = key.line.model.most_rows(key)
        now += 0.1
        if rows > room:
            key.line.model.ran_out(key, rows, now)
            failures += 1
        else:
            key.line.model.fitted(key, rows, now)
    return failures, now


@pytest.mark.parametrize("max_batch", [32, 1024])
def test_a_short_want_of_memory_is_forgotten_within_minutes(max_batch: int) -> None:
    """The way down is one event, however many halves it has: it must not make each step up wait for minutes."""
    key = key_of(max_batch)
    _, now = run(key, room=0, seconds=3.0, now=0.0)
    assert key.line.model.most_rows(key) == 1
    run(key, room=max_batch, seconds=40 * FIRST_PATIENCE_S, now=now)
    assert key.line.model.most_rows(key) == max_batch


def test_what_fails_again_is_tried_ever_more_rarely_and_what_has_fitted_is_run_meanwhile() -> None:
    key = key_of(32)
    failures, now = run(key, room=20, seconds=200.0, now=0.0)
    assert failures >= 2
    later = []
    for _ in range(4):
        failures, now = run(key, room=20, seconds=1000.0, now=now)
        later.append(failures)
        assert 16 <= key.line.model.most_rows(key) <= 24, "20 at best; or the next larger one is being tried"
    assert later[-1] <= 1000.0 / LONGEST_PATIENCE_S + 1


def test_when_what_had_failed_fits_the_waits_are_short_again() -> None:
    key = key_of(1024)
    _, now = run(key, room=20, seconds=3000.0, now=0.0)
    run(key, room=1024, seconds=LONGEST_PATIENCE_S + 30 * FIRST_PATIENCE_S, now=now)
    assert key.line.model.most_rows(key) == 1024


def test_where_less_fits_than_once_did_it_goes_down_by_halves_again() -> None:
    key = key_of(32)
    _, now = run(key, room=20, seconds=100.0, now=0.0)
    failures, now = run(key, room=3, seconds=5.0, now=now)
    assert failures <= 4
    assert key.line.model.most_rows(key) <= 3
    assert run(key, room=3, seconds=5.0, now=now)[0] == 0


@pytest.mark.parametrize("allowed", [(1, 2, 4, 8, 16, 32, 64), (1, 8, 64), (64,)])
def test_with_allowed_sizes_the_next_one_is_tried(allowed: tuple[int, ...]) -> None:
    key = key_of(64, *allowed)
    _, now = run(key, room=63, seconds=1.0, now=0.0)
    assert key.line.model.most_rows(key) < 64
    run(key, room=64, seconds=30 * FIRST_PATIENCE_S, now=now)
    assert key.line.model.most_rows(key) == 64

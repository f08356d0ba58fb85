"""What the core decides by, and the restarts that follow from it."""

import dataclasses
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pool.core.fleet.restart import GivenUp, RestartHistory
from pool.core.policy import DEVICE_WORDS_S, ModelPolicy, Policy
from pool.wire.worker_messages import Phase

steady = settings(deadline=None, derandomize=True, database=None)


def history(seed: int = 0, **policy: Any) -> RestartHistory:
    return RestartHistory(Policy(**policy), random.Random(seed))


def pause_after(deaths: RestartHistory, now: float) -> float | None:
    """The death of a worker that had been READY and held no job: the pause in seconds, None for the end."""
    after = deaths.after_death(now, served_s=1e12, held_jobs=False)
    return None if isinstance(after, GivenUp) else after.seconds


def test_a_policy_is_a_value() -> None:
    assert Policy() == Policy()
    with pytest.raises(dataclasses.FrozenInstanceError):
        Policy().max_jobs = 1  # type: ignore[misc]


def test_every_phase_has_a_setting_of_its_own() -> None:
    policy = Policy(import_timeout_s=1.0, load_timeout_s=2.0, warmup_timeout_s=3.0, device_free_timeout_s=4.0)
    assert {phase: policy.phase_budget_s(phase) for phase in Phase} == {
        Phase.IMPORTING: 1.0,
        Phase.LOADING: 2.0,
        Phase.WARMING_UP: 3.0,
        Phase.AWAITING_DEVICE: 4.0 + DEVICE_WORDS_S,
        Phase.SERVING: None,
        Phase.STANDING_BY: None,
    }
    assert len({policy.phase_setting(phase) for phase in Phase}) == len(Phase)


def test_a_batch_may_run_as_long_as_its_longest_timeout_and_never_less_than_the_floor() -> None:
    policy = Policy(hung_floor_s=60.0)
    assert policy.batch_budget_s(2.0, 0.0) == 60.0
    assert policy.batch_budget_s(90.0, 0.0) == 90.0


def test_a_batch_may_run_ten_times_as_long_as_the_slowest_of_its_like() -> None:
    assert Policy(hung_floor_s=60.0).batch_budget_s(90.0, 30.0) == 300.0


def test_hung_after_overrules_the_timeouts() -> None:
    assert Policy(hung_after_s=5.0).batch_budget_s(90.0, 30.0) == 5.0


def test_the_longest_stop_is_the_sum_of_its_steps() -> None:
    assert Policy(drain_timeout_s=1.0, stop_timeout_s=2.0, kill_timeout_s=4.0).longest_stop_s == 7.0


def test_intensity_is_the_number_of_restarts_and_one_more_death_ends_the_trying() -> None:
    deaths = history(restart_intensity=3, restart_period_s=60.0)
    assert [pause_after(deaths, float(now)) is not None for now in range(4)] == [True, True, True, False]


def test_an_intensity_of_zero_allows_no_restart() -> None:
    assert pause_after(history(restart_intensity=0), 0.0) is None


def test_deaths_older_than_the_period_do_not_count() -> None:
    deaths = history(restart_intensity=1, restart_period_s=10.0)
    assert all(pause_after(deaths, now) is not None for now in (0.0, 10.5, 21.0, 31.5))
    assert pause_after(deaths, 32.0) is None


def test_the_pause_doubles_up_to_its_bound() -> None:
    deaths = history(restart_intensity=9, backoff_first_s=1.0, backoff_max_s=8.0)
    ceilings = (1.0, 2.0, 4.0, 8.0, 8.0, 8.0)
    for ceiling in ceilings:
        pause = pause_after(deaths, 0.0)
        assert pause is not None
        assert 0.6 * ceiling <= pause <= ceiling


def test_at_the_bound_too_the_pauses_of_different_slots_differ() -> None:
    """Workers that died of one cause would otherwise load in the same second from then on."""
    rng = random.Random(0)
    policy = Policy(backoff_first_s=100.0, backoff_max_s=8.0)
    pauses = {pause_after(RestartHistory(policy, rng), 0.0) for _ in range(20)}
    assert len(pauses) == 20


def test_the_same_seed_gives_the_same_pauses() -> None:
    one, other = history(seed=5), history(seed=5)
    assert [pause_after(one, 0.0) for _ in range(5)] == [pause_after(other, 0.0) for _ in range(5)]


@steady
@given(
    gaps=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=60),
    intensity=st.integers(0, 8),
    period_s=st.floats(1e-9, 200.0),
    start=st.floats(0.0, 1e9),
)
def test_restarts_end_exactly_when_more_than_intensity_deaths_are_within_the_period(
    gaps: list[float], intensity: int, period_s: float, start: float
) -> None:
    deaths = history(restart_intensity=intensity, restart_period_s=period_s)
    now, seen = start, []
    for gap in gaps:
        now += gap
        seen.append(now)
        recent = [instant for instant in seen if instant >= now - period_s]
        pause = pause_after(deaths, now)
        assert (pause is None) == (len(recent) > intensity)
        assert pause is None or 0.0 < pause <= Policy().backoff_max_s


def test_a_patient_intensity_does_not_run_out_of_numbers() -> None:
    deaths = history(restart_intensity=5000, restart_period_s=1e9)
    pauses = [pause_after(deaths, float(now)) for now in range(3000)]
    assert all(pause is not None and pause <= Policy().backoff_max_s for pause in pauses)


@pytest.mark.parametrize("served_s", [None, 0.0, 59.9])
def test_deaths_before_or_soon_after_ready_end_the_trying_however_long_each_load_took(served_s: float | None) -> None:
    deaths = history(restart_intensity=3, restart_period_s=60.0)
    ends = [
        isinstance(deaths.after_death(600.0 * number, served_s=served_s, held_jobs=False), GivenUp)
        for number in range(4)
    ]
    assert ends == [False, False, False, True]


def test_a_worker_that_served_for_a_while_has_earned_a_new_count() -> None:
    deaths = history(restart_intensity=1, restart_period_s=60.0)
    for number in range(20):
        after = deaths.after_death(600.0 * number, served_s=60.0 if number % 2 else 59.0, held_jobs=False)
        assert not isinstance(after, GivenUp)


def test_deaths_that_a_job_may_have_caused_neither_end_the_trying_nor_make_the_pauses_longer() -> None:
    deaths = history(restart_intensity=2, restart_period_s=60.0, backoff_max_s=5.0, backoff_first_s=0.1)
    for number in range(100):
        after = deaths.after_death(number * 0.1, served_s=0.05, held_jobs=True)
        assert not isinstance(after, GivenUp)
        assert after.seconds <= 0.1


@pytest.mark.parametrize(("rows", "padded"), [(1, 2), (2, 2), (3, 8), (8, 8), (9, 9)])
def test_rows_are_padded_to_the_next_allowed_size(rows: int, padded: int) -> None:
    assert ModelPolicy(max_batch=8, allowed_batch_sizes=(2, 8)).padded(rows) == padded
    assert ModelPolicy().padded(rows) == rows

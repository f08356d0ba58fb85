"""How long a client looks for its pool, on a clock of the test's own."""

from pathlib import Path

import pytest

from pool import errors
from pool.client.outage import FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S, Outage
from pool.endpoint import EndpointLock

LOST = "the pool at ipc:///p went away"


def outage(lost: str | None = LOST, chance: float = 0.5, pause_s: float = FIRST_PAUSE_S) -> Outage:
    return Outage("ipc:///p", 30.0, 100.0, lost, pause_s, lambda: chance)


def test_the_first_pool_is_looked_for_at_once_and_a_lost_one_by_each_client_in_its_own_instant() -> None:
    assert outage(lost=None).next_try == 100.0
    tries = {outage(chance=number / 10).next_try for number in range(10)}
    assert len(tries) == 10
    assert max(tries) < 100.0 + FIRST_PAUSE_S


def test_connections_that_break_at_once_are_made_ever_more_slowly() -> None:
    away, now = outage(), 100.0
    pauses = []
    for _ in range(10):
        away.failed(now)
        pauses.append(away.next_try - now)
        now = away.next_try
    assert pauses == sorted(pauses)
    assert FIRST_PAUSE_S < pauses[0] < LONGEST_PAUSE_S / 2 < pauses[-1] <= LONGEST_PAUSE_S


def test_so_are_those_to_a_pool_that_is_lost_again_and_again() -> None:
    assert outage().pause_after(STEADY_S) == FIRST_PAUSE_S
    pause_s = FIRST_PAUSE_S
    for _ in range(10):
        longer_s = outage(pause_s=pause_s).pause_after(STEADY_S / 2)
        assert pause_s < longer_s or longer_s == LONGEST_PAUSE_S
        pause_s = longer_s


def test_it_is_given_up_in_time_and_says_why() -> None:
    away = outage()
    away.check(129.9)
    assert away.until == 130.0
    with pytest.raises(errors.PoolUnreachable, match="ipc:///p went away and did not come back within 30 s"):
        away.check(130.0)
    with pytest.raises(errors.PoolUnreachable, match=r"no pool answers at ipc:///p \(waited 30 s\); start one"):
        outage(lost=None).check(130.0)


def test_time_in_which_this_process_stood_still_is_no_search() -> None:
    away = outage()
    away.stood_still(60.0)
    away.check(189.0)
    with pytest.raises(errors.PoolUnreachable):
        away.check(190.0)


def test_what_a_job_is_told_whose_time_ends_meanwhile() -> None:
    assert outage().told(101.5) == "the pool at ipc:///p went away, 1.5 s ago"
    assert outage(lost=None).told(101.5) == "no pool answered at ipc:///p"


def test_one_that_lives_and_is_silent_is_told_from_none(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/p.sock"
    silent = Outage(endpoint, 2.0, 100.0)
    lock = EndpointLock(tmp_path / "p.sock")
    with pytest.raises(
        errors.PoolUnreachable, match=r"^the pool at \S+ does not answer \(waited 2 s\): its process \(pid"
    ):
        silent.check(102.0)
    assert "its process" in silent.told(101.0)
    with pytest.raises(errors.PoolUnreachable, match="went away and did not come back within 2 s: its process"):
        Outage(endpoint, 2.0, 100.0, LOST).check(102.0)
    lock.release()
    with pytest.raises(errors.PoolUnreachable, match="no pool answers"):
        silent.check(102.0)

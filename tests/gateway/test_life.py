"""When one of the gateway's processes starts, is replaced and ends: instants in, orders out."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.core import IllegalStep
from pool.processes.gateways.life import GATEWAY_STEPS, GatewayState, Kill, Life, Order, Pace, Spawn, Terminate

PACE = Pace(start_s=60.0, silent_s=15.0, first_pause_s=0.1, longest_pause_s=30.0, steady_s=60.0)


def begun(now: float = 0.0) -> Life:
    life = Life(0, random.Random(1), PACE)
    assert life.begin(now) == [Spawn(1)]
    return life


def serving(now: float = 0.0) -> Life:
    life = begun(now)
    assert life.alive(1, now) == []
    assert life.state is GatewayState.SERVING
    return life


def state_of(life: Life) -> GatewayState:
    """As it is by now, and not as it was a line above."""
    return life.state


def test_one_that_dies_is_followed_after_a_pause_that_doubles() -> None:
    life, now, pauses = begun(), 0.0, []
    for incarnation in range(1, 14):
        assert life.exited(incarnation, "SIGSEGV", now) == []
        assert (life.state, life.reason) == (GatewayState.BACKOFF, "SIGSEGV")
        pauses.append(life.pause_s)
        now = life.next_deadline()
        assert life.tick(now - 0.01) == []
        assert life.tick(now) == [Spawn(incarnation + 1)]
    for number, pause_s in enumerate(pauses):
        longest_s = min(30.0, 0.1 * 2**number)
        assert 0.6 * longest_s <= pause_s <= longest_s
    assert life.restarts == 13


def test_whose_processes_serve_before_they_die_is_not_kept_waiting() -> None:
    """Somebody may send what kills one: the others are not to wait for half a minute each time."""
    life, now = begun(), 0.0
    for incarnation in range(1, 20):
        life.alive(incarnation, now)
        life.exited(incarnation, "SIGSEGV", now + 0.5)
        assert life.pause_s <= PACE.served_pause_s
        now = life.next_deadline()
        life.tick(now)
    life.exited(20, "exit status 1", now)
    assert life.pause_s > 10, "this one did not even serve"


def test_who_has_served_for_long_is_wanted_back_at_once() -> None:
    life, now = begun(), 0.0
    for incarnation in range(1, 9):
        life.exited(incarnation, "SIGSEGV", now)
        now = life.next_deadline()
        life.tick(now)
    assert life.pause_s > 5
    life.alive(9, now)
    assert life.reason == "", "it serves again"
    life.exited(9, "SIGKILL", now + PACE.steady_s)
    assert life.pause_s <= PACE.first_pause_s


@pytest.mark.parametrize(("serves", "due", "why"), [(False, 60.0, "did not answer"), (True, 15.0, "no sign of life")])
def test_one_that_hangs_is_killed_and_followed_without_waiting_for_its_exit(serves: bool, due: float, why: str) -> None:
    life = serving() if serves else begun()
    assert life.next_deadline() == due
    assert life.tick(due) == [Kill(1)]
    assert life.state is GatewayState.BACKOFF
    assert why in life.reason
    assert life.tick(due) == [], "it is killed once"
    now = life.next_deadline()
    assert life.tick(now) == [Spawn(2)]
    assert life.exited(1, "SIGKILL", now) == []
    assert state_of(life) is GatewayState.STARTING, "the exit of the one before is nothing to the next one"


def test_a_sign_of_life_is_time_won_and_only_the_first_is_news() -> None:
    life = serving(0.0)
    for now in range(1, 100):
        assert life.alive(1, float(now)) == []
        assert life.tick(float(now)) == []
    assert life.next_deadline() == 99 + PACE.silent_s


def test_the_former_serves_until_the_one_with_other_settings_does() -> None:
    life = serving()
    assert life.replace(30.0, 5.0) == [Spawn(2)]
    assert life.alive(1, 5.5) == []
    assert life.state is GatewayState.STARTING
    assert life.alive(2, 6.0) == [Terminate(1)]
    assert life.tick(35.9) == [Kill(2)], "it was silent"
    assert life.tick(36.0)[0] == Kill(1), "and the former had its time"


def test_the_former_ends_too_if_the_next_one_dies_at_once() -> None:
    """It would accept a token that is no longer valid."""
    life = serving()
    life.replace(30.0, 5.0)
    assert life.exited(2, "exit status 1", 5.1) == [Terminate(1)]
    assert life.state is GatewayState.BACKOFF
    assert life.exited(1, "exit status 0", 5.2) == []
    assert life.state is GatewayState.BACKOFF


def test_one_that_waits_to_start_starts_at_once_with_other_settings() -> None:
    """They may be what was wrong."""
    life, now = begun(), 0.0
    for incarnation in range(1, 9):
        life.exited(incarnation, "exit status 1", now)
        now = life.next_deadline()
        life.tick(now)
    life.exited(9, "exit status 1", now)
    assert life.pause_s > 5
    assert life.replace(30.0, now + 0.01) == []
    assert life.tick(now + 0.01) == [Spawn(10)]
    life.exited(10, "exit status 1", now)
    assert life.pause_s <= PACE.first_pause_s, "what was before counts no more"


def test_a_stop_ends_all_there_are_and_nobody_follows() -> None:
    life = serving()
    life.replace(30.0, 1.0)
    assert sorted(life.stop(30.0, 2.0), key=repr) == [Terminate(1), Terminate(2)]
    assert life.exited(1, "exit status 0", 2.1) == []
    assert life.state is GatewayState.STOPPING
    assert not life.is_gone
    assert life.tick(32.0) == [Kill(2)]
    assert life.exited(2, "SIGKILL", 32.1) == []
    assert life.is_gone
    assert life.next_deadline() == math.inf


def test_a_stop_in_a_pause_is_at_once_over() -> None:
    life = begun()
    life.exited(1, "SIGSEGV", 0.0)
    assert life.stop(30.0, 0.01) == []
    assert life.is_gone
    assert life.tick(100.0) == []


def test_who_is_told_to_kill_kills_each_once() -> None:
    life = serving()
    assert life.kill(1.0) == [Kill(1)]
    assert life.kill(2.0) == []
    assert life.tick(100.0) == []
    life.exited(1, "SIGKILL", 100.0)
    assert life.is_gone


def test_an_illegal_step_raises_and_changes_nothing() -> None:
    life = serving()
    with pytest.raises(IllegalStep, match=r"SERVING → STOPPED is no step"):
        life._step(GatewayState.STOPPED)
    assert life.state is GatewayState.SERVING


def test_each_state_has_its_steps_and_can_be_reached() -> None:
    assert set(GATEWAY_STEPS) == set(GatewayState) == {step for steps in GATEWAY_STEPS.values() for step in steps}


@given(st.lists(st.tuples(st.sampled_from(["alive", "exit", "replace", "stop", "tick", "kill"]), st.floats(0, 40))))
def test_whatever_comes_each_process_ends_once_stopped(moves: list[tuple[str, float]]) -> None:
    """A world that does as it is told: who is terminated or killed exits, sooner or later."""
    life, now, there = begun(), 0.0, {1: math.inf}
    most = 1

    def obey(orders: list[Order]) -> None:
        nonlocal most
        for order in orders:
            if isinstance(order, Spawn):
                assert order.incarnation == most + 1, "each has a number of its own"
                most += 1
                there[most] = math.inf
            elif order.incarnation in there:
                there[order.incarnation] = now

    for move, seconds in moves:
        now += seconds
        match move:
            case "alive":
                obey(life.alive(most, now))
            case "exit":
                for incarnation in list(there)[:1]:
                    del there[incarnation]
                    obey(life.exited(incarnation, "SIGSEGV", now))
            case "replace":
                obey(life.replace(10.0, now))
            case "stop":
                obey(life.stop(10.0, now))
            case "kill":
                obey(life.kill(now))
            case "tick":
                obey(life.tick(now))
        serve = [each for each, ends in there.items() if ends == math.inf]
        assert life.state is not GatewayState.SERVING or life.incarnation in there
        assert life.state is not GatewayState.BACKOFF or not [each for each in serve if each == life.incarnation]
    obey(life.stop(10.0, now))
    while there:
        now = min(life.next_deadline(), now + 100.0)
        obey(life.tick(now))
        for incarnation in [each for each, ends in there.items() if ends <= now]:
            del there[incarnation]
            obey(life.exited(incarnation, "exit status 0", now))
    assert life.is_gone

"""When a connection pings and when it gives up, on a clock of the test's own."""

import pytest

from pool.client.pulse import PING_S, SETTLE_S, SILENCE_S, Pulse


def test_it_pings_when_nothing_was_sent_though_answers_come() -> None:
    pulse = Pulse(0.0)
    pulse.heard(0.9)
    assert pulse.next_ping() == PING_S
    pulse.pinged(1.0)
    pulse.heard(1.9)
    assert pulse.next_ping() == 2.0


def test_it_pings_when_nothing_was_heard_though_jobs_are_sent() -> None:
    pulse = Pulse(0.0)
    pulse.sent(0.9)
    assert pulse.next_ping() == PING_S


def test_it_does_not_ping_while_both_speak() -> None:
    pulse = Pulse(0.0)
    pulse.sent(5.0)
    pulse.heard(5.5)
    assert pulse.next_ping() == 5.0 + PING_S


def test_silence_is_an_unanswered_ping() -> None:
    pulse = Pulse(0.0)
    assert not pulse.silent(1000.0)  # nothing was asked
    pulse.pinged(1000.0)
    pulse.pinged(1001.0)
    assert not pulse.silent(1000.0 + SILENCE_S - PING_S - 0.1)
    assert pulse.silent(1000.0 + SILENCE_S - PING_S)
    pulse.heard(1008.0)
    assert not pulse.silent(2000.0)


def test_time_in_which_the_process_stood_still_does_not_count() -> None:
    pulse = Pulse(0.0)
    pulse.pinged(1.0)
    pulse.sleep(2.0)
    assert pulse.overslept(62.0) == pytest.approx(60.0)
    assert not pulse.silent(62.0 + SETTLE_S)
    assert pulse.judge_from == 62.0 + SETTLE_S
    assert pulse.next_ping() <= 62.0  # asked again at once
    assert pulse.silent(62.0 + SILENCE_S)  # and nothing came in running time


def test_a_punctual_loop_is_judged_at_once() -> None:
    pulse = Pulse(0.0)
    pulse.pinged(1.0)
    for second in range(1, 12):
        pulse.sleep(second + 1.0)
        assert pulse.overslept(second + 1.01) == 0.0
    assert pulse.judge_from == 0.0
    assert pulse.silent(12.01)

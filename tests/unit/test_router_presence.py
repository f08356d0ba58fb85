"""Who is silent: in time that the pool was awake, and whoever was heard of longest ago before the others."""

import pytest

from pool.serve.presence import LOOK_S, Presence

ONE, OTHER, THIRD = b"one", b"other", b"third"
SILENCE_S = 2 * LOOK_S


@pytest.fixture
def presence() -> Presence:
    presence = Presence(SILENCE_S)
    for client in (ONE, OTHER, THIRD):
        presence.heard(client, 100.0)
    assert presence.silent(100.0) == []
    return presence


def looked(presence: Presence, since: float, until: float) -> list[bytes]:
    """Who is silent then, where somebody has looked all the time."""
    silent: list[bytes] = []
    for instant in range(int(since), int(until) + 1):
        silent = presence.silent(float(instant))
    return silent


def test_who_was_heard_of_again_is_not_silent_and_hides_nobody(presence: Presence) -> None:
    presence.heard(ONE, 101.0)
    presence.heard(ONE, 102.0)
    presence.heard(OTHER, 103.0)
    assert looked(presence, 103.0, 100.0 + SILENCE_S) == []
    assert looked(presence, 100.0 + SILENCE_S, 101.0 + SILENCE_S) == [THIRD]
    assert looked(presence, 102.0 + SILENCE_S, 103.0 + SILENCE_S) == [THIRD, ONE]
    assert looked(presence, 104.0 + SILENCE_S, 104.0 + SILENCE_S) == [THIRD, ONE, OTHER]


@pytest.mark.parametrize("gone", [ONE, THIRD])
def test_one_that_was_forgotten_comes_again_as_the_last(presence: Presence, gone: bytes) -> None:
    presence.forget(gone)
    assert gone not in presence.clients()
    presence.heard(gone, 101.0)
    presence.heard(OTHER, 102.0)
    assert presence.clients()[-2:] == [gone, OTHER]
    presence.heard(gone, 103.0)
    assert presence.clients()[-2:] == [OTHER, gone]


def test_a_pause_of_the_pool_counts_as_one_between_two_looks(presence: Presence) -> None:
    assert presence.silent(100.0 + 1000 * SILENCE_S) == []
    presence.heard(ONE, 100.0 + 2000 * SILENCE_S)
    assert presence.silent(100.0 + 2000 * SILENCE_S) == [], "two looks of silence at most"
    assert looked(presence, 100.0 + 2000 * SILENCE_S, 101.0 + 2000 * SILENCE_S) == [OTHER, THIRD]


def test_somebody_looks_while_there_are_clients(presence: Presence) -> None:
    assert presence.next_look(100.0) == 100.0 + LOOK_S
    for client in presence.clients():
        presence.forget(client)
    assert presence.next_look(100.0) is None

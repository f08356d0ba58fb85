"""What all processes of a gateway hold together: each bound is of their sum, whoever holds it."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.gateway.accounts import Accounts, Sum
from pool.wire.gateway import GatewaySettings, Token

TOKENS = (Token("alice", b"1"), Token("alice", b"2"), Token("bob", b"3"))


@pytest.fixture
def shared() -> Iterator[int]:
    file = os.memfd_create("accounts")
    yield file
    os.close(file)


def accounts(shared: int, number: int, processes: int = 3) -> Accounts:
    settings = GatewaySettings((), "127.0.0.1:1", number=number, processes=processes, tokens=TOKENS)
    return Accounts(settings, shared)


def test_one_process_may_have_all_and_then_no_other_has_any(shared: int) -> None:
    first, second = accounts(shared, 0), accounts(shared, 2)
    assert all(first.connections.take(1, 10) for _ in range(10))
    assert not second.connections.take(1, 10)
    assert second.bodies.take(7, 10), "another account"
    assert not first.bodies.take(4, 10)
    assert (first.connections.own, second.connections.own, second.bodies.own) == (10, 0, 7)
    first.connections.give(3)
    assert second.connections.take(3, 10)
    assert not second.connections.take(1, 10)


def test_one_that_follows_a_dead_one_holds_nothing_and_the_others_keep_what_they_have(shared: int) -> None:
    dead, other = accounts(shared, 0), accounts(shared, 1)
    dead.bodies_of("alice").take(5, 9)
    other.bodies_of("alice").take(4, 9)
    assert not other.bodies_of("bob").own
    follower = accounts(shared, 0).bodies_of("alice")
    assert follower.take(5, 9)
    assert not follower.take(1, 9)
    assert follower.all == 9


def test_each_name_has_its_own(shared: int) -> None:
    assert accounts(shared, 0).bodies_of("alice").take(1, 1)
    assert accounts(shared, 1).bodies_of("bob").take(1, 1)
    assert accounts(shared, 2).bodies_of("bob").all == 1
    assert accounts(shared, 0).bodies.all == 0


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 50), st.booleans())))
def test_the_sum_is_never_more_than_the_bound(steps: list[tuple[int, int, bool]]) -> None:
    cells = memoryview(bytearray(24)).cast("q")
    sums = [Sum(cells, number) for number in range(3)]
    for number, amount, takes in steps:
        if takes:
            room = 100 - sum(cells)
            assert sums[number].take(amount, 100) == (amount <= room)
        else:
            sums[number].give(min(amount, sums[number].own))
        assert sum(cells) <= 100

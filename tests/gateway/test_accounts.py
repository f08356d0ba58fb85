"""What all processes of a gateway hold together: each bound is of their sum, whoever holds it."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pool.gateway.accounts import Accounts, Rate, Sum
from pool.wire.gateway import ClientRules, GatewaySettings

CLIENTS = (ClientRules("alice", rate=2.0), ClientRules("bob", rate=2.0, max_jobs=1))


@pytest.fixture
def shared() -> Iterator[int]:
    file = os.memfd_create("accounts")
    yield file
    os.close(file)


def accounts(shared: int, number: int, processes: int = 3) -> Accounts:
    settings = GatewaySettings((), "127.0.0.1:1", number=number, processes=processes, clients=CLIENTS)
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
    dead.of_client("alice")[0].take(5, 9)
    other.of_client("alice")[0].take(4, 9)
    assert not other.of_client("bob")[0].own
    follower = accounts(shared, 0).of_client("alice")[0]
    assert follower.take(5, 9)
    assert not follower.take(1, 9)


def test_each_client_has_its_own(shared: int) -> None:
    alice, bob = accounts(shared, 0).of_client("alice"), accounts(shared, 1).of_client("bob")
    assert alice[0].take(1, 1)
    assert bob[0].take(1, 1)
    assert alice[1].take(1, 1)
    assert bob[1].take(1, 1)
    nobody = accounts(shared, 0).of_client("nobody")
    assert nobody[2] is None
    assert nobody[0].take(1, 1)


def test_a_rate_is_of_all_processes(shared: int) -> None:
    rates = [accounts(shared, number).of_client("bob")[2] for number in (0, 1, 2)]
    waits = [rate.take() for rate in rates if rate is not None]
    assert waits[:2] == [0.0, 0.0]
    assert 0.0 < waits[2] <= 0.5
    alice = accounts(shared, 1).of_client("alice")[2]
    assert alice is not None
    assert alice.take() == 0.0


def test_a_slow_rate_lets_one_job_go_at_once() -> None:
    rate = Rate(0.001)
    assert rate.take() == 0.0
    assert 999 < rate.take() <= 1000


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

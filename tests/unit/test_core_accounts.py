"""What the connections of one client hold together is bounded, and they take turns as one, by its weight."""

from collections import Counter
from typing import Any

import pytest

from pool.core import events as told
from pool.core.actions import JobFailed
from pool.core.policy import AccountPolicy, ModelPolicy, Policy
from pool.core.queue.accounts import MOST_IDLE, NUMBER_BYTES, Accounts
from pool.wire.faults import Fault
from simulation.driver import AnswerJob, Did, Driver, every, one, payloads


def of(account: str, connection: int = 1) -> bytes:
    """A connection's name, as the front makes it."""
    return connection.to_bytes(NUMBER_BYTES, "big") + account.encode()


def served(**accounts: AccountPolicy) -> Driver:
    return Driver(["m"], accounts=accounts).serve()


def refusal(actions: list[Did]) -> JobFailed:
    outcome = one(actions, AnswerJob).outcome
    assert isinstance(outcome, JobFailed)
    return outcome


def taken(driver: Driver, client: bytes, **job: Any) -> bool:
    return not every(driver.submit(client=client, **job), AnswerJob)


def test_jobs_of_all_connections_count_and_those_of_others_do_not() -> None:
    driver = served(alice=AccountPolicy(max_jobs=2))
    assert taken(driver, of("alice", 1))
    assert taken(driver, of("alice", 2))
    failed = refusal(driver.submit(client=of("alice", 3)))
    assert failed.fault is Fault.QUOTA_EXCEEDED
    assert failed.text == "client alice has 2 jobs in the queue or running; 1 more would exceed its max_jobs (2)"
    assert failed.retry_after_s is not None
    assert taken(driver, of("bob", 3))
    assert taken(driver, of("key:alice", 4)), "who has no [[client]] has no bound of one"
    driver.done(driver.run_of(1))
    assert taken(driver, of("alice", 3))


def test_bytes_of_all_connections_count() -> None:
    driver = served(alice=AccountPolicy(max_bytes=100))
    assert taken(driver, of("alice", 1), size_bytes=60)
    failed = refusal(driver.submit(client=of("alice", 2), size_bytes=50))
    assert failed.fault is Fault.QUOTA_EXCEEDED
    assert failed.text == "client alice has 60 B in the queue or running; 50 B more would exceed its max_bytes (100 B)"
    never = refusal(driver.submit(client=of("alice", 2), size_bytes=101))
    assert never.fault is Fault.INVALID_INPUT
    assert "max_bytes of client alice" in never.text
    assert taken(driver, of("alice", 2), size_bytes=40)


def test_a_rate_lets_a_second_s_worth_come_at_once_and_then_so_many_a_second() -> None:
    driver = served(alice=AccountPolicy(rate=4.0))
    assert [taken(driver, of("alice", n)) for n in range(1, 7)] == [True] * 4 + [False] * 2
    failed = refusal(driver.submit(client=of("alice")))
    assert failed.text == "client alice may send 4 jobs a second"
    assert failed.retry_after_s == pytest.approx(0.25)
    driver.now += 0.25
    assert taken(driver, of("alice", 9))
    assert not taken(driver, of("alice", 9))
    driver.now += 5.0
    assert sum(taken(driver, of("alice", 10)) for _ in range(10)) == 4, "what was not used is not saved up"


def test_a_slow_rate_is_one_job_now_and_then() -> None:
    driver = served(alice=AccountPolicy(rate=0.1))
    assert taken(driver, of("alice"))
    assert refusal(driver.submit(client=of("alice"))).retry_after_s == pytest.approx(10.0)


@pytest.mark.parametrize("rules", [AccountPolicy(max_jobs=3), AccountPolicy(rate=3.0)])
def test_a_chunk_that_never_fits_comes_by_its_members(rules: AccountPolicy) -> None:
    driver = served(alice=rules)
    actions = driver.submit(client=of("alice"), rows=4, weight=4)
    assert not every(actions, AnswerJob)
    account = driver.machine.backlog.accounts.named[b"alice"]
    assert account.held == 0, "it was unpacked"


def test_connections_of_one_client_take_turns_as_one_by_its_weight() -> None:
    driver = Driver(
        ["m"],
        models={"m": ModelPolicy(max_batch=4)},
        accounts={"heavy": AccountPolicy(weight=3.0), "light": AccountPolicy()},
        max_jobs=100_000,
        default_timeout_s=1e6,
    ).serve()
    whose: dict[object, str] = {}
    number = 0

    def submit(account: str, connection: int) -> None:
        nonlocal number
        number += 1
        whose[f"payload {number}"] = account
        driver.submit("m", job=number, client=of(account, connection), rows=1)

    for turn in range(20):
        submit("heavy", 1)
        for connection in range(2, 7):  # five connections are no more than one
            submit("light", connection)
        assert turn < 20
    ran: Counter[str] = Counter()
    for _ in range(200):
        (run,) = driver.running()
        driver.now += 0.04
        for payload in payloads(run):
            ran[whose[payload]] += 1
            submit(whose[payload], 1 if whose[payload] == "heavy" else 2 + number % 5)
        driver.done(run)
        driver.log = driver.log[-50:]
    assert ran["heavy"] / ran["light"] == pytest.approx(3.0, rel=0.15)
    accounts = driver.machine.backlog.accounts.named
    assert accounts[b"heavy"].device_s / accounts[b"light"].device_s == pytest.approx(3.0, rel=0.2)


def test_other_bounds_hold_from_the_next_job_on() -> None:
    driver = served(alice=AccountPolicy(max_jobs=1))
    assert taken(driver, of("alice", 1))
    assert not taken(driver, of("alice", 2))
    driver.feed(told.PolicyChanged(Policy(accounts={"alice": AccountPolicy(max_jobs=2, rate=1.0)})))
    assert taken(driver, of("alice", 2))
    driver.feed(told.PolicyChanged(Policy()))
    assert all(taken(driver, of("alice", 3)) for _ in range(5))
    driver.feed(told.PolicyChanged(Policy(accounts={"alice": AccountPolicy(rate=2.0)})))
    assert [taken(driver, of("alice", 4)) for _ in range(3)] == [True, True, False], "a rate begins anew"


def test_accounts_that_hold_nothing_are_forgotten_when_there_are_too_many() -> None:
    accounts = Accounts(Policy())
    first = accounts.of(of("first"))
    first.held = 1
    for number in range(3 * MOST_IDLE):
        accounts.of(of(f"key:{number}"))
    assert len(accounts.named) <= MOST_IDLE + 1
    assert accounts.of(of("first")) is first


@pytest.mark.parametrize(("account", "is_one"), [("key:bob", True), ("token:bob", True), ("uid:7", False)])
def test_who_has_a_name_is_one_client_to_the_queue_whatever_connections_it_has(account: str, is_one: bool) -> None:
    driver = Driver(["m"], client_max_jobs=2).serve()
    assert taken(driver, of(account, 1))
    assert taken(driver, of(account, 1))
    if not is_one:
        assert taken(driver, of(account, 2))
        return
    failed = refusal(driver.submit(client=of(account, 2)))
    assert failed.fault is Fault.OVERLOADED, "no bound of its own: the queue's"
    assert "this client has 2 jobs" in failed.text

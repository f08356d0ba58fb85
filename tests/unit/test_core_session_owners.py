"""Private sessions end with their client: which workers are told of whom."""

from pool.core import actions as do
from pool.core import events as told
from pool.wire.session_runs import OPEN, PRIVATE_RUN
from simulation.driver import Driver, RunBatch, every


def opened(driver: Driver, client: bytes, device: str) -> RunBatch:
    """The run that opens one for the client there, which is done."""
    driver.submit(signature=OPEN, client=client, device=device)
    run = driver.running()[-1]
    driver.done(run)
    return run


def ended(driver: Driver, client: bytes) -> list[tuple[int, int, int]]:
    """Who is told that the client is gone."""
    ends = every(driver.feed(told.ClientGone(client)), do.EndSessions)
    return [(end.slot, end.incarnation, end.owner) for end in ends]


def test_each_worker_that_opened_one_is_told_once_and_no_other() -> None:
    driver = Driver(["m"], ["m"], ["m"]).serve()
    runs = [opened(driver, b"a", device) for device in ("slot:0", "slot:0", "slot:2")]
    (owner,) = {run.owner for run in runs}
    assert owner > 0
    assert ended(driver, b"a") == [(0, 1, owner), (2, 1, owner)]
    assert ended(driver, b"a") == []


def test_clients_have_numbers_of_their_own_and_other_jobs_none() -> None:
    driver = Driver(["m"]).serve()
    owners = [opened(driver, client, "slot:0").owner for client in (b"a", b"b")]
    assert len(set(owners)) == 2
    driver.submit(signature=PRIVATE_RUN, client=b"a")
    assert driver.running()[-1].owner == 0
    assert [owner for _, _, owner in ended(driver, b"b")] == owners[1:]


def test_a_client_that_goes_while_one_is_opened_is_told_too() -> None:
    driver = Driver(["m"]).serve()
    driver.submit(signature=OPEN, client=b"a")
    (run,) = driver.running()
    assert ended(driver, b"a") == [(0, 1, run.owner)]


def test_who_comes_again_from_there_is_another() -> None:
    driver = Driver(["m"]).serve()
    first = opened(driver, b"a", "slot:0")
    ended(driver, b"a")
    assert opened(driver, b"a", "slot:0").owner != first.owner


def test_a_worker_that_is_gone_is_told_nothing() -> None:
    driver = Driver(["m"], ["m"]).serve()
    opened(driver, b"a", "slot:0")
    driver.die(0)
    assert ended(driver, b"a") == []

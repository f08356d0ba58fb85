"""A job's future: cancelled, abandoned, finished in spite of its callbacks."""

import subprocess
import sys
import threading
from concurrent.futures import CancelledError, Future, as_completed, wait
from typing import Any, cast

import pytest

from pool import errors
from pool.client.driver import Driver
from pool.client.futures import JobFuture
from support.processes import eventually
from unit.results import result_of


def test_a_cancelled_future_is_done_for_those_who_wait() -> None:
    told = []
    future = JobFuture(lambda: told.append("pool"))
    late = threading.Timer(0.05, future.cancel)
    late.start()
    assert wait([future], timeout=5).done == {future}
    late.join()
    assert list(as_completed([future], timeout=1)) == [future]
    assert future.cancel()
    assert told == ["pool"]
    future.finish(errors.PoolUnreachable("lost"))  # as the end of a connection does
    with pytest.raises(CancelledError):
        future.result(0)


def test_who_waits_for_two_hears_of_one_that_is_cancelled_twice_but_once() -> None:
    first, second = JobFuture(), JobFuture()
    found: list[Future[Any]] = []
    waiting = threading.Thread(target=lambda: found.extend(as_completed([first, second], timeout=10)))
    waiting.start()
    eventually(lambda: len(first._waiters) == len(second._waiters) == 1)
    assert first.cancel()
    assert first.cancel()
    first.tell()  # as where whoever told it before was interrupted
    second.finish(result_of({}))
    waiting.join()
    assert found == [first, second]


def test_who_begins_to_wait_at_the_end_of_many_hears_of_each_once() -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        met = 0
        for _ in range(60):
            futures = [JobFuture() for _ in range(300)]
            finisher = threading.Thread(target=lambda: [future.finish(result_of({})) for future in futures])  # noqa: B023
            finisher.start()
            found = list(as_completed(futures, timeout=10))
            met += any(future._is_told for future in futures)
            finisher.join()
            assert sorted(map(id, found)) == sorted(map(id, futures))
            assert not wait(futures, timeout=10).not_done
        assert met, "none ended while somebody waited"
    finally:
        sys.setswitchinterval(interval)


def test_a_lock_that_is_never_given_back_stops_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `concurrent.futures.wait` leaves one where Ctrl-C comes in its midst."""
    monkeypatch.setattr("pool.client.futures.LOOK_S", 0.05)
    future = JobFuture()
    taken = threading.Thread(target=future._condition.acquire)
    taken.start()
    taken.join()
    future.finish(result_of({}))
    assert future.done()
    assert future._is_told


def test_cancel_notifies_though_a_callback_raises() -> None:
    told = []
    future = JobFuture(lambda: told.append("pool"))
    future.add_done_callback(lambda _: sys.exit())
    with pytest.raises(SystemExit):
        future.cancel()
    assert told == ["pool"]
    assert wait([future], timeout=1).done == {future}


def test_a_callback_cannot_stop_the_one_who_finishes(caplog: pytest.LogCaptureFixture) -> None:
    future = JobFuture()
    future.add_done_callback(lambda _: sys.exit())
    future.finish(result_of({}))
    assert future.result(0) == {}
    assert "a done-callback of a job raised" in caplog.text


def test_waiting_in_the_io_thread_is_refused() -> None:
    driver = Driver(cast("Any", None), cast("Any", None))
    future = JobFuture(driver=driver)
    driver._thread = threading.get_ident()
    with pytest.raises(errors.InvalidState, match="done-callback"):
        future.result()
    with pytest.raises(errors.InvalidState, match="done-callback"):
        future.exception()
    future.finish(result_of({}))
    assert future.result() == {}


def test_it_makes_no_lock_before_somebody_waits() -> None:
    future = JobFuture()
    assert not future.done()
    future.finish(result_of({}))
    assert future.result(0) == {}
    assert not isinstance(vars(future).get("_lock"), threading.Condition)
    waits = JobFuture()

    def has_lock() -> bool:
        return isinstance(vars(waits).get("_lock"), threading.Condition)

    late = threading.Thread(target=lambda: (eventually(has_lock), waits.finish(result_of({}))))
    late.start()
    assert waits.result(30) == {}  # it has begun to wait, or nobody would finish it
    assert has_lock()
    late.join()


def test_who_waits_and_who_finishes_never_miss_each_other() -> None:
    """Both look at the same instant, which is another in each round."""
    for count in range(2000):
        future = JobFuture()
        called: list[object] = []
        finisher = threading.Thread(target=future.finish, args=[{"n": count}])
        finisher.start()
        if count % 2:
            future.add_done_callback(called.append)
            finisher.join()
            assert called == [future]
        else:
            assert future.result(5) == {"n": count}
            finisher.join()


def test_one_that_is_cancelled_and_finished_at_once_is_one_of_both() -> None:
    for _ in range(2000):
        future = JobFuture()
        finisher = threading.Thread(target=future.finish, args=[{}])
        finisher.start()
        cancelled = future.cancel()
        finisher.join()
        assert future.cancelled() == cancelled
        assert cancelled or future.result(0) == {}


def test_a_fork_ends_a_future_in_any_state_and_runs_no_callback() -> None:
    lost = errors.PoolUnreachable("before the fork")
    ran: list[Future[Any]] = []
    pending, finished = JobFuture(), JobFuture()
    pending.add_done_callback(ran.append)
    finished.finish(result_of({}))
    pending._condition.acquire()  # another thread of the parent held it
    for future in (pending, finished):
        future.abandon_after_fork(lost)
    assert pending.exception(0) is lost
    assert finished.result(0) == {}
    assert ran == []
    assert wait([pending, finished], timeout=0).done == {pending, finished}


TWO_THREADS = """
import gc, sys, threading, time
from pool.client.futures import JobFuture

class Cycle:
    def __init__(self): self.me = self
    def __del__(self):
        for _ in range(50): pass  # other threads run in the midst of a collection

sys.setswitchinterval(1e-6)
gc.set_threshold(50, 2, 2)
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    futures = [JobFuture() for _ in range(300)]
    finisher = threading.Thread(target=lambda: [(Cycle(), future.finish({})) for future in futures])
    finisher.start()
    for future in futures:
        Cycle(), future._condition
    finisher.join()
"""


def test_two_threads_that_touch_it_first_in_a_collection_do_not_crash() -> None:
    """CPython 3.11 makes an object's dictionary twice then; in a process of its own, since that ends it."""
    subprocess.run([sys.executable, "-c", TWO_THREADS, "2"], check=True, timeout=60)

"""A job's future: cancelled, abandoned, finished in spite of its callbacks."""

import sys
import threading
from concurrent.futures import CancelledError, as_completed, wait

import pytest

from pool import errors
from pool.client.futures import JobFuture


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
    future.finish({})
    assert future.result(0) == {}
    assert "a done-callback of a job raised" in caplog.text


def test_waiting_in_the_io_thread_is_refused() -> None:
    future = JobFuture(io_thread=threading.current_thread())
    with pytest.raises(errors.PoolError, match="done-callback"):
        future.result()
    with pytest.raises(errors.PoolError, match="done-callback"):
        future.exception()
    future.finish({})
    assert future.result() == {}


def test_a_fork_ends_a_future_in_any_state_and_runs_no_callback() -> None:
    lost = errors.PoolUnreachable("before the fork")
    ran: list[JobFuture] = []
    pending, running, finished = JobFuture(), JobFuture(), JobFuture()
    for future in (pending, running):
        future.add_done_callback(ran.append)
    assert running.set_running_or_notify_cancel()
    finished.finish({})
    pending._condition.acquire()  # another thread of the parent held it
    for future in (pending, running, finished):
        future.abandon_after_fork(lost)
    assert pending.exception(0) is lost
    assert running.exception(0) is lost
    assert finished.result(0) == {}
    assert ran == []

"""A job's future: cancelled, abandoned, finished in spite of its callbacks."""

import sys
import threading
from concurrent.futures import CancelledError, as_completed, wait
from typing import Any, cast

import pytest

from pool import errors
from pool.client.futures import JobFuture
from pool.client.helm import Helm


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
    helm = Helm(cast("Any", None), cast("Any", None))
    future = JobFuture(helm=helm)
    helm._thread = threading.get_ident()
    with pytest.raises(errors.PoolError, match="done-callback"):
        future.result()
    with pytest.raises(errors.PoolError, match="done-callback"):
        future.exception()
    future.finish({})
    assert future.result() == {}


def test_it_makes_no_lock_before_somebody_waits() -> None:
    future = JobFuture()
    assert not future.done()
    future.finish({})
    assert future.result(0) == {}
    assert "_lock" not in vars(future)
    waits = JobFuture()
    late = threading.Timer(0.05, waits.finish, [{}])
    late.start()
    assert waits.result(5) == {}
    assert "_lock" in vars(waits)
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
    ran: list[JobFuture] = []
    pending, finished = JobFuture(), JobFuture()
    pending.add_done_callback(ran.append)
    finished.finish({})
    pending._condition.acquire()  # another thread of the parent held it
    for future in (pending, finished):
        future.abandon_after_fork(lost)
    assert pending.exception(0) is lost
    assert finished.result(0) == {}
    assert ran == []

"""Who drives: who sends what waits, and receives what comes, so that each job of a client ends in time.

    state           who waits at the sockets                      who works when something comes
    ASLEEP          the thread, in its rest                       the thread
    DRIVEN          the caller who wants an answer                that caller, for all
                    an event loop whose tasks want some           that loop, for all

    ASLEEP ──► DRIVEN   a caller comes: he borrows the sources from the thread's rest, and wakes nobody
    DRIVEN ──► DRIVEN   his answer is there, and another caller waits: he is the next
    DRIVEN ──► ASLEEP   nobody waits: the thread is called only where it would look too late by itself

Who drives may be kept from it: by a signal's handler, a debugger, or tasks that block their loop. A second later he has
lost that: to a caller who stands by, or to the thread, which looks every second if anything was posted meanwhile.

Who holds the lock may use the dialogue. Nobody holds it while he waits, nor while he runs a done-callback, so other
callers send in their own threads while one waits for all. It knows its owner: so a caller who was interrupted finds
out, at whatever line it was, what he has left behind.
"""

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pool.client.event_loop import EventLoop

from pool.client.context import SharedContext, shared
from pool.client.dialogue import Dialogue
from pool.client.futures import JobFuture
from pool.client.outstanding import Job
from pool.client.sources import Sources
from pool.client.wait import Wait
from pool.errors import InvalidState, PoolError, PoolUnreachable
from pool.wire.spin import spin

__all__ = ["Driver"]

LOOK_S = 1.0  # how often who waits for another looks by himself

log = logging.getLogger("pool.client")


class Driver:
    def __init__(self, dialogue: Dialogue, sources: Sources, spin_s: float = 0.0) -> None:
        """`spin_s`: how long a caller looks again and again before he sleeps."""
        self.over: PoolError | None = None
        """Why it takes no jobs any more."""
        self._lock = threading.RLock()
        self._dialogue = dialogue
        self._sources = sources
        self._spin_s = spin_s
        self._current: Wait | EventLoop | None = None  # ASLEEP if there is none
        self._standing: dict[Wait | EventLoop, None] = {}  # callers for whom another one, or the thread, receives
        self._looks_at = 0.0  # when who waits at the sockets looks by himself
        self._rests_until = 0.0  # when the thread does
        self._failure: PoolError | None = None  # that a caller met
        self._ended: deque[JobFuture] = deque()  # those who wait for them are to be told
        self._thread = 0

    # --- a caller -----------------------------------------------------------------------------------------------

    def attend(self, wait: Wait, job: Job | None = None) -> None:
        """Sends the job, if there is one, and returns when the wait is over: he drives, or another does.

        Whatever raises in a caller's thread ends here: interrupted, he leaves all in order, or torn as the dialogue
        knows, and the thread mends it.
        """
        try:
            self._lock.acquire()
            if self.over is not None:
                wait.finish(self.over)
            elif job is not None:
                self._drives(wait)  # before it is sent, or the answer would wake the thread too
                self._dialogue.take(job)
            while wait.outcome is None:
                if self._drives(wait):
                    self._turn()
                else:
                    self._stand_by(wait)
            self._leave(wait)
            self._lock.release()
        except BaseException as error:
            self.recover(wait, error)
            if not isinstance(error, Exception):
                raise
            while wait.outcome is None:  # the thread ends all that is out
                if self.over is not None:
                    wait.finish(self.over)
                wait.sleep(LOOK_S)

    def _drives(self, wait: "Wait | EventLoop") -> bool:
        """Whether he does from now on. The thread alone sees to a pool that is not there, and to the end."""
        steady = self._is_steady
        if self._current is wait:
            if not steady:
                self._leave(wait)
            return steady
        if not steady or (self._current is not None and not self._is_kept(self._current)):
            return False
        self._standing.pop(wait, None)
        self._current = wait
        self._sources.borrow()
        return True

    def _is_kept(self, driver: "Wait | EventLoop") -> bool:
        """Whether he who drives is kept from it."""
        return driver.is_blocked or time.monotonic() >= self._looks_at + LOOK_S

    @property
    def _is_steady(self) -> bool:
        return self._failure is None and self._dialogue.is_steady

    def _turn(self) -> None:
        now = time.monotonic()
        dialogue, sources = self._dialogue, self._sources
        seconds = dialogue.wait_s(now)
        ready: dict[int, int] = {}
        if seconds:
            self._looks_at = now + seconds
            self._lock.release()
            if self._spin_s:
                ready = spin(lambda: sources.wait(0.0), self._spin_s)
            ready = ready or sources.wait(seconds)
            self._lock.acquire()  # by now the thread may do it for him, and what he has found harms nobody
        dialogue.work(ready, 1)  # the answer, mostly: a look tells whether more has come, not another receive

    def _stand_by(self, wait: Wait) -> None:
        """Another waits at the sockets."""
        self._tell_driver()
        self._standing[wait] = None
        wait.prepare()
        self._lock.release()
        wait.sleep(LOOK_S)
        self._lock.acquire()

    def _leave(self, wait: "Wait | EventLoop") -> None:
        """DRIVEN → DRIVEN, or DRIVEN → ASLEEP, if it was he who drove."""
        self._standing.pop(wait, None)
        if self._current is wait and self._standing and self._is_steady:
            for other in self._standing:
                if isinstance(other, Wait) and other.outcome is None:
                    self._current = other
                    other.ring()
                    return
        if self._current is wait:
            self._current = None
            self._tell_driver()
            self._sources.give_back()
        else:
            self._tell_driver()

    def _tell_driver(self) -> None:
        """What was sent here may have taken what would have woken him, or there is something to do before he looks."""
        now = time.monotonic()
        dialogue = self._dialogue
        ends = dialogue.released and dialogue.is_over
        due = now + dialogue.wait_s(now) if self._is_steady and not ends else now
        if self._current is None:
            self._looks_at = self._rests_until
            if due < self._rests_until:
                self._sources.call_thread()
        elif due < self._looks_at:
            self._sources.ring()
        dialogue.sleeps_until(self._looks_at)

    def recover(self, wait: "Wait | EventLoop", error: BaseException) -> None:
        """He has nothing any more, at whatever line he was. In a forked child nothing of it is his anyway."""
        while True:
            try:
                if isinstance(self.over, AfterFork):
                    return
                self._lock.acquire()
                self._sources.mend()
                if isinstance(error, Exception):
                    self._failure = self._failure or as_pool_error(error)
                elif self._dialogue.is_busy:
                    self._dialogue.is_torn, self._dialogue.is_busy = True, False
                if self.over is None:
                    self._leave(wait)
                    if self._current is None:
                        self._sources.give_back()  # he may have been about to
                    self._sources.call_thread()
                while self._lock._is_owned():  # type: ignore[attr-defined]
                    self._lock.release()
                return
            except KeyboardInterrupt:  # one more, while the first is on its way to the caller
                continue

    # --- an event loop ------------------------------------------------------------------------------------------

    def turn(self, driver: "EventLoop") -> float | None:
        """Does all that is to do, without waiting. After how many seconds to look again; None: another drives."""
        try:
            self._lock.acquire()
            seconds = None
            if self.over is None and self._drives(driver):
                self._dialogue.work(self._sources.wait(0.0))
                if self._drives(driver):
                    now = time.monotonic()
                    seconds = self._dialogue.wait_s(now)
                    self._looks_at = now + seconds
                    if self._rests_until > now + LOOK_S:
                        self._sources.call_thread()  # to look whether the loop is blocked
            elif self.over is None:
                self.wake()
            self._lock.release()
            return seconds
        except BaseException as error:
            self.recover(driver, error)
            if not isinstance(error, Exception):
                raise
            return None

    def leave(self, driver: "EventLoop") -> None:
        """It waits for nothing any more."""
        try:
            self._lock.acquire()
            if self._current is driver:
                self._leave(driver)
            self._lock.release()
        except BaseException as error:
            self.recover(driver, error)
            raise

    # --- anybody ------------------------------------------------------------------------------------------------

    def wake(self) -> None:
        """There is something for who drives. Takes no lock: finalizers call it."""
        self._sources.ring()
        if self._current is not None and self._rests_until > time.monotonic() + LOOK_S:
            self._sources.call_thread()

    @property
    def is_thread(self) -> bool:
        """Whether this is the thread, which runs the done-callbacks and must not wait for itself."""
        return threading.get_ident() == self._thread

    def check_wait(self) -> None:
        """Raises `InvalidState` where this thread would wait for itself."""
        if self.is_thread:
            raise InvalidState(
                "a done-callback of this client must not wait for the client itself;"
                " submit without `block` there, and add a done-callback to the new future"
            )
        if self._lock._is_owned():  # type: ignore[attr-defined]  # as `Condition` asks it
            raise InvalidState(
                "a signal handler must not wait for a client that its own thread is using;"
                " submit without waiting there, or give the handler its own client"
            )

    def notify(self, future: JobFuture) -> None:
        """The thread is to tell those who wait for it, and to run its done-callbacks."""
        if self.is_thread:
            self._ended.append(future)
        elif self.over is None:
            self._ended.append(future)
            self._sources.call_thread()
        else:
            future.notify()
            future.run_callbacks()

    # --- the thread ---------------------------------------------------------------------------------------------

    def run(self) -> PoolError:
        """Until the client is closed or dropped, or there is no pool. Then why its jobs end. Raises nothing."""
        self._thread = threading.get_ident()
        self._lock.acquire()
        try:
            with shared() as context:
                self._run(context)
        except Exception as error:  # whatever it is, no future may hang on it
            return as_pool_error(error)
        return PoolUnreachable("the client was closed before the answer came")

    def end(self) -> None:
        """The thread's last act, when all has ended."""
        self._tell()
        self._lock.release()
        self._tell()

    def _run(self, context: SharedContext) -> None:
        dialogue = self._dialogue
        try:
            while self._current is not None or not dialogue.is_over:
                self._thread_turn(context)
            dialogue.say_goodbye()
        finally:
            dialogue.end()

    def _thread_turn(self, context: SharedContext) -> None:
        now = time.monotonic()
        seconds = LOOK_S
        if self._sources.is_called:
            self._sources.rest(0.0)  # it looks at all there is
        if self._current is not None and self._is_kept(self._current):
            self._current = None
            self._sources.give_back()
        if self._current is None:
            if self._failure is not None:
                raise self._failure
            self._dialogue.prepare(context, now)
            seconds = self._dialogue.wait_s(now)
            self._looks_at = now + seconds
        self._rests_until = now + seconds
        if seconds:
            self._lock.release()
            try:
                self._sources.rest(seconds)
            finally:
                self._lock.acquire()
        if self._current is None:
            if self._failure is not None:
                raise self._failure
            self._dialogue.work(self._sources.wait(0.0))
        if self._ended:
            self._lock.release()
            try:
                self._tell()
            finally:
                self._lock.acquire()

    def _tell(self) -> None:
        """Those who wait first: a done-callback may take its time. Who is told stays here till then, for a fork."""
        while ended := tuple(self._ended):
            for future in ended:
                future.notify()
            for future in ended:
                future.run_callbacks()
                self._ended.popleft()

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: the thread and the sockets stayed with the parent, and so did who had the lock."""
        self.over = AfterFork(str(error))
        for future in self._ended:
            future.abandon_after_fork(error)
        self._lock = threading.RLock()
        self._sources.close()


class AfterFork(PoolUnreachable):
    """What was the parent's."""


def as_pool_error(error: BaseException) -> PoolError:
    if isinstance(error, PoolError):
        return error
    return PoolUnreachable(f"the client's I/O thread failed: {type(error).__name__}: {error}")

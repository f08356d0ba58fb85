"""The loop of a client: of its I/O thread, and, for one job at a time, of the caller who waits for it."""

import time
from collections.abc import Callable

from pool.client.context import SharedContext, shared
from pool.client.dialogue import RECEIVE_BURST, Dialogue
from pool.client.futures import JobFuture
from pool.client.helm import Helm
from pool.client.waker import Waker
from pool.errors import PoolError, PoolUnreachable

__all__ = ["Loop"]

Wait = Callable[[float], dict[int, int]]  # for so many seconds at most; the descriptors that ended it


class Loop:
    def __init__(self, dialogue: Dialogue, helm: Helm, waker: Waker) -> None:
        self._dialogue = dialogue
        self._helm = helm
        self._waker = waker
        self._failure: PoolError | None = None  # that a caller met
        helm.watch(waker.fileno())

    def run(self) -> PoolError:
        """The I/O thread's: until the client is closed or dropped, or there is no pool. Then why its jobs end.

        It has the helm from then on, so no caller takes it any more. Raises nothing.
        """
        self._helm.steer()
        try:
            with shared() as context:
                self._run(context)
        except Exception as error:  # whatever it is, no future may hang on it
            return _as_pool_error(error)
        return PoolUnreachable("the client was closed before the answer came")

    def _run(self, context: SharedContext) -> None:
        dialogue = self._dialogue
        dialogue.begin(time.monotonic())
        try:
            while not dialogue.is_over:
                dialogue.prepare(context, time.monotonic())
                self._turn(self._helm.rest)
            dialogue.say_goodbye()
        finally:
            dialogue.end()

    def attend(self, future: JobFuture) -> bool:
        """A caller's: sends its job and waits for the answer, unless somebody else wants something too.

        False where the I/O thread has to see to what is left, and is to be woken. Interrupted while it only waits, it
        leaves all as it was; anywhere else, the connection ends.
        """
        helm, dialogue = self._helm, self._dialogue
        if not helm.take():
            return False
        try:
            if dialogue.is_about_one_job:
                dialogue.send_off()
            while future.is_pending and dialogue.is_about_one_job:
                self._turn(helm.wait, 1)  # the answer, mostly: a look tells whether more has come, not another receive
            return self._may_rest(time.monotonic())
        except BaseException as error:
            if not helm.was_waiting:
                self._failure = _as_pool_error(error)
            if not isinstance(error, Exception):
                self._waker.wake()
                raise
            return False
        finally:
            helm.hand_back()

    def _may_rest(self, now: float) -> bool:
        """Whether the I/O thread looks by itself before there is anything to do."""
        if not self._dialogue.is_idle:
            return False
        left, seconds = self._helm.rests_until - now, self._dialogue.wait_s(now)
        if not seconds or left > seconds:
            return False
        self._dialogue.sleeps(now, left)
        return True

    def _turn(self, wait: Wait, most: int = RECEIVE_BURST) -> None:
        now = time.monotonic()
        seconds = self._dialogue.wait_s(now)
        ready: dict[int, int] = {}
        if seconds:
            self._dialogue.sleeps(now, seconds)
            ready = wait(seconds)
            if self._failure is not None:
                raise self._failure
            if self._waker.fileno() in ready:
                self._waker.drain()
        self._dialogue.work(ready, most)


def _as_pool_error(error: BaseException) -> PoolError:
    if isinstance(error, PoolError):
        return error
    if isinstance(error, Exception):
        return PoolUnreachable(f"the client's I/O thread failed: {type(error).__name__}: {error}")
    return PoolUnreachable(f"{type(error).__name__} came while the caller was talking with the pool")

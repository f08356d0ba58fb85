"""A session with variables of its own: it lives in one worker, as long as this process touches it there."""

import os
import threading
import time
import weakref
from collections.abc import Generator, Mapping
from typing import Any

from pool.client.session_calls import Answer, SessionCall, SessionCalls
from pool.errors import InvalidInput, InvalidState, PoolError, WorkerLost
from pool.wire import session_runs as wire

__all__ = ["PrivateSession"]

TOUCH_S = 20.0
IDLE_S = 3600.0  # one that is not used for so long is not touched any more
CLOSE_S = 5.0


class PrivateSession:
    """Ends by itself when nobody holds it any more. What it does is steps, see `session_steps`."""

    def __init__(self, calls: SessionCalls, device: str | int | None) -> None:
        self._calls = calls
        self._asked_device = device
        self._pid = os.getpid()
        self._place: tuple[bytes, str] | None = None  # what its worker calls it, and that worker's slot
        self._keeper: _Keeper | None = None

    def is_open(self) -> bool:
        """Raises `InvalidState` in a forked child."""
        if self._pid != os.getpid():
            raise InvalidState("this private session belongs to the parent process; open a new one after the fork")
        return self._place is not None

    def opening(self, timeout: float | None) -> Generator[SessionCall, Answer, None]:
        """Opens it, unless it is open. REQUIRES that nobody else goes through these steps meanwhile."""
        if self._place is None:
            answer, timeline = yield SessionCall(wire.OPEN, (), {}, timeout, self._asked_device)
            place = answer[wire.SESSION].item(), f"slot:{timeline.slot}"
            self._keeper = _Keeper(self._calls, *place)
            weakref.finalize(self, self._keeper.over.set)
            self._keeper.start()
            self._place = place

    def run(
        self, names: tuple[str, ...], inputs: Mapping[str, object], timeout: float | None
    ) -> Generator[SessionCall, Answer, dict[str, Any]]:
        """REQUIRES that it is open. `WorkerLost` means that the session is lost, and what its variables were."""
        assert self._place is not None
        assert self._keeper is not None
        session, device = self._place
        self._keeper.used = time.monotonic()
        try:
            answer, _ = yield SessionCall(wire.PRIVATE_RUN, names, {**inputs, wire.SESSION: session}, timeout, device)
        except WorkerLost as error:
            error.retryable = False
            raise
        return answer

    def close(self) -> None:
        """Waits a moment for the worker to hear of it; otherwise it finds out."""
        if self._keeper is not None and self._pid == os.getpid():
            self._keeper.over.set()
            self._keeper.join(CLOSE_S)


class _Keeper(threading.Thread):
    """Knows no `PrivateSession`, so that one can be dropped."""

    def __init__(self, calls: SessionCalls, session: bytes, device: str) -> None:
        super().__init__(name="pool-session", daemon=True)
        self.over = threading.Event()
        self.used = time.monotonic()
        self._calls = calls
        self._session = session
        self._device = device

    def run(self) -> None:
        while not self.over.wait(TOUCH_S) and time.monotonic() < self.used + IDLE_S:
            if not self._say(wire.TOUCH, TOUCH_S):
                return
        self._say(wire.CLOSE, CLOSE_S)

    def _say(self, what: str, timeout: float) -> bool:
        """False if there is no more to be said: the session is lost, or this client closed. The next run says so."""
        try:
            self._calls.ask(SessionCall(what, (), {wire.SESSION: self._session}, timeout, self._device))
        except (WorkerLost, InvalidInput):
            return False
        except PoolError as error:
            return not isinstance(error, InvalidState)  # the pool is busy, or away for a while
        return True

"""What a caller waits with who wants nothing but the outcome: no lock is made where he receives it himself."""

import contextlib
import threading
from typing import Any, Protocol

from pool.errors import PoolError

__all__ = ["Ending", "Wait"]


class Ending(Protocol):
    """What waits for the answer of a job."""

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody waits for it any more."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether it has its outcome."""
        ...

    def finish(self, result: Any) -> None:
        """With a `JobResult`, or a `PoolError`. Any but the first does nothing."""

    def tell(self) -> None:
        """Those who wait, once more, that it is over: who finished it may have been interrupted."""

    def abandon_after_fork(self, error: PoolError) -> None: ...


class Wait:
    """One caller's. `outcome`: None until there is one. `is_cancelled`: the caller does not want it any more."""

    __slots__ = ("_bell", "is_cancelled", "outcome")

    is_blocked = False
    """Whether the caller cannot receive now. Nobody knows."""

    def __init__(self) -> None:
        self.outcome: Any = None
        self.is_cancelled = False
        self._bell: threading.Lock | None = None

    @property
    def is_over(self) -> bool:
        return self.outcome is not None

    def finish(self, outcome: Any) -> None:
        """Any but the first changes nothing."""
        if self.outcome is None:
            self.outcome = outcome
        self.ring()

    def tell(self) -> None:
        """Again, since who has finished it may have been interrupted."""
        self.ring()

    def abandon_after_fork(self, error: PoolError) -> None:
        self.finish(error)

    def prepare(self) -> None:
        """From now on, whoever rings for it is heard. REQUIRES its caller."""
        if self._bell is None:
            bell = threading.Lock()
            bell.acquire()
            self._bell = bell

    def sleep(self, seconds: float) -> None:
        """Until it is rung for, or so long. REQUIRES its caller, and that he looks for the outcome afterwards."""
        self.prepare()
        assert self._bell is not None
        if self.outcome is None:
            self._bell.acquire(timeout=seconds)

    def ring(self) -> None:
        """Wakes who sleeps, or his next sleep is none."""
        bell = self._bell
        if bell is not None and bell.locked():
            with contextlib.suppress(RuntimeError):  # another thread was quicker
                bell.release()

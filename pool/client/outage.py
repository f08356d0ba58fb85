"""The time without a pool: until the first one answers, or from the loss of one to the next. The clock is an argument.

    lost ──► pause ──► connection ──► OPEN ──► OPENED
              ▲            │ broken again           │ over: `PoolUnreachable`
              └────────────┘ a longer pause         ▼ jobs are sent (again)

Clients of one pool lose it in the same instant; their pauses differ, so that they do not all return in the same.
"""

import random
from collections.abc import Callable

from pool.endpoint import why_silent
from pool.errors import PoolUnreachable

__all__ = ["Outage", "PoolAway"]

FIRST_PAUSE_S = 0.05  # while nobody listens, libzmq tries ten times a second by itself
LONGEST_PAUSE_S = 2.0
LOOK_S = 0.1  # as often as libzmq tries
STEADY_S = 5.0  # a pool that was lost sooner is returned to more slowly


class PoolAway(PoolUnreachable):
    """The connection is of no use any more; there may be a pool again soon.

    `unread`: by the pool's own word it has read nothing that it has not answered. `listens`: it may still read.
    """

    def __init__(self, text: str, *, unread: bool = False, listens: bool = False) -> None:
        super().__init__(text)
        self.unread = unread
        self.listens = listens


class Outage:
    def __init__(
        self,
        endpoint: str,
        patience_s: float,
        now: float,
        lost: str | None = None,
        pause_s: float = FIRST_PAUSE_S,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`lost`: how the pool was lost that was there, None if none has been. `chance` gives numbers in [0, 1).

        A text: an exception would hold the frames of who met it, and so his inputs, until the next outage.
        """
        self._endpoint = self._tried = endpoint
        self._patience_s = patience_s
        self._began = now
        self._until = now + patience_s
        self._lost = lost
        self._chance = chance
        self._pause_s = pause_s
        self.next_try = now if lost is None else now + pause_s * chance()

    @property
    def is_first(self) -> bool:
        """Whether no pool has been there yet."""
        return self._lost is None

    def looks_at(self, endpoint: str, tried: str) -> None:
        """For the error: where the pool is awaited, and every place where it was looked for, in words."""
        self._endpoint, self._tried = endpoint, tried

    def look_again(self, now: float) -> None:
        """Nobody listens in any of them."""
        self.next_try = now + LOOK_S

    @property
    def until(self) -> float:
        """When it is given up."""
        return self._until

    def failed(self, now: float) -> None:
        """A connection was made and broke before the pool had said a word."""
        self._pause_s = self._longer()
        self.next_try = now + self._pause_s * (1 + self._chance()) / 2

    def pause_after(self, steady_s: float) -> float:
        """The first pause of the next outage, which began so long after the end of this one."""
        return FIRST_PAUSE_S if steady_s >= STEADY_S else self._longer()

    def _longer(self) -> float:
        return min(2 * self._pause_s, LONGEST_PAUSE_S)

    def stood_still(self, seconds: float) -> None:
        """This process did not run for so long: that was no search for the pool."""
        self._until += seconds

    def check(self, now: float) -> None:
        """Raises `PoolUnreachable` when it has lasted too long."""
        if now < self._until:
            return
        patience, why = f"{self._patience_s:g} s", why_silent(self._endpoint)
        if self._lost is not None:
            raise PoolUnreachable(f"{self._lost} and did not come back within {patience}" + (why and f": {why}"))
        if why:
            raise PoolUnreachable(f"the pool at {self._endpoint} does not answer (waited {patience}): {why}")
        raise PoolUnreachable(f"no pool answers at {self._tried} (waited {patience}); start one with `pool start`")

    def told(self, now: float) -> str:
        """For the error of a job whose time ends meanwhile."""
        if self._lost is None:
            why = why_silent(self._endpoint)
            return f"no pool answered at {self._tried}" + (why and f": {why}")
        return f"{self._lost}, {now - self._began:.1f} s ago"

"""The way to the core and back: one event at a time, and each of its actions before the next event.

event ─► waiting ─► Machine.handle ─► action, action, … ─► done
            ▲                            │
            └──── spawned, unsent, … ◄───┘
"""

import time
from collections import deque
from collections.abc import Callable, Iterable

from pool.core.actions import Action
from pool.core.events import Event
from pool.recorder.last_events import LastEvents

__all__ = ["CoreFault", "Feed"]


class CoreFault(BaseException):
    """The core, or what follows from its decisions, has raised: a bug, after which its state can't be trusted.

    No `Exception`: whoever contains what goes wrong with one peer's message must not contain this.
    """


class Feed:
    """Used from the pool's loop. After a `CoreFault` the core hears of nothing any more."""

    def __init__(
        self,
        handle: Callable[[Event, float], Iterable[Action]],
        prepare: Callable[[Event, float], None],
        act: Callable[[Action], None],
        done: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`prepare` is called before the core hears of an event, `act` for each action, `done` when no event waits."""
        self.last = LastEvents()
        self._handle = handle
        self._prepare = prepare
        self._act = act
        self._done = done
        self._clock = clock
        self._waiting: deque[Event] = deque()
        self._busy = False

    def __call__(self, event: Event) -> None:
        """Has the core handle the event; what arises meanwhile is handled before this returns.

        Called while an event's actions are being done, it returns at once, and the event waits for its turn.
        Raises `CoreFault`.
        """
        waiting = self._waiting
        waiting.append(event)
        if self._busy:
            return
        self._busy = True
        doing: object = None
        try:
            while waiting:
                doing = event = waiting.popleft()
                now = self._clock()
                self._prepare(event, now)
                self.last.note(event, now)
                for action in self._handle(event, now):
                    doing = action
                    self._act(action)
                self.last.strip(event)
            doing = None
            self._done()
        except Exception as error:
            where = "the answers" if doing is None else type(doing).__name__
            after = "" if doing is event else f" after {type(event).__name__}"
            raise CoreFault(f"{where}{after}: {type(error).__name__}: {error}") from error
        self._busy = False

"""A loop that visits only what is ready or due, however much is registered.

    wait ─► the handler of each source that is ready ─► what follows ─► the alarms that are due ─┐
      ▲                                                                                          │
      └──────────────────────────────────────────────────────────────────────────────────────────┘

It knows sources, handlers and alarms, and nothing of who registers them. What a handler raises ends the turn.
"""

from collections.abc import Callable

from pool.clock import Alarm, Alarms
from pool.loop.watch import Source, Watch

__all__ = ["LONGEST_WAIT_S", "Loop"]

LONGEST_WAIT_S = 3600.0


class Loop:
    """Used from one thread. Each turn a source that is ready is visited once, so none keeps another from its visit.

    REQUIRES handlers that end soon, also where more is to be read: then their source is ready in the next turn, too.
    """

    def __init__(self, watch: Watch, alarms: Alarms, follow: Callable[[], None] = lambda: None) -> None:
        """`follow` is called in each turn, when the handlers were: for what follows from all of them together."""
        self._follow = follow
        self._watch = watch
        self._alarms = alarms
        self._handlers: dict[Source, Callable[[], None]] = {}
        self._gone: set[Source] = set()  # in this turn; whatever has such a number by now was not ready

    def close(self) -> None:
        self._watch.close()

    def alarm(self, call: Callable[[], None]) -> Alarm:
        return self._alarms.alarm(call)

    def register(self, source: Source, handler: Callable[[], None]) -> None:
        """Calls the handler in each turn in which the source is readable or has ended, from the next turn on."""
        assert source not in self._handlers, source
        self._watch.add(source)
        self._handlers[source] = handler

    def unregister(self, source: Source) -> None:
        """Its handler is not called any more, in this turn either. To be called before the source is closed.

        Does nothing for one that is not registered.
        """
        if self._handlers.pop(source, None) is not None:
            self._watch.remove(source)
            self._gone.add(source)

    def is_registered(self, source: Source) -> bool:
        return source in self._handlers

    def turn(self) -> None:
        """Waits for what is ready or due first, no longer than an hour, and serves it.

        What becomes due while this waits is served in the next turn where a source is ready in this one.
        """
        if self._gone:
            self._gone.clear()
        left_s = self._alarms.left_s(LONGEST_WAIT_S)
        ready = self._watch.wait(left_s)
        for source in ready:
            if source not in self._gone:
                self._handlers[source]()
        self._follow()
        if self._alarms.asked or not ready or left_s <= 0.0:
            self._alarms.call_due()

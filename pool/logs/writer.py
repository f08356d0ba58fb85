"""A thread that writes, so that nobody who logs ever waits for whoever reads."""

import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from pool.logs.entry import Entry

__all__ = ["Writer"]

MOST_ENTRIES = 10_000
MOST_CHARS = 16 << 20  # of their messages

Send = Callable[[Entry], None]  # may wait, raises OSError


class Writer:
    """Entries go out in the order in which they came, to the first of several ways that takes them.

    Past the bound they are dropped until all that waits is written; then one entry says how many those were.
    """

    def __init__(
        self,
        ways: Sequence[Send],
        show: Callable[[str], None] | None = None,
        most_entries: int = MOST_ENTRIES,
        most_chars: int = MOST_CHARS,
    ) -> None:
        """`show`: where a person sees what goes on now; may wait, raises OSError."""
        self._ways = ways
        self._show = show
        self._now: str | None = None  # which is not shown yet
        self._most_entries = most_entries
        self._most_chars = most_chars
        self._waiting: deque[Entry] = deque()
        self._chars = 0
        self._dropped = 0
        self._closing = False
        self._changed = threading.Condition()
        self._unwritten = 0  # the thread's own: what nobody took, and what was dropped meanwhile
        # A daemon: one that waits for a reader must not hold up the end of the process.
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def put(self, entry: Entry) -> None:
        """From any thread. Never waits, never raises; after `close` it does nothing."""
        with self._changed:
            full = len(self._waiting) >= self._most_entries or self._chars >= self._most_chars
            if self._closing:
                return
            if full or self._dropped:
                self._dropped += 1
                return
            self._waiting.append(entry)
            self._chars += len(entry.message)
            self._changed.notify()

    def show(self, text: str) -> bool:
        """From any thread, what goes on now. Never waits; who does not see it in time sees what follows it.

        False: nobody sees it at all.
        """
        if self._show is None:
            return False
        with self._changed:
            self._now = text
            self._changed.notify()
        return True

    def close(self, timeout_s: float) -> bool:
        """Takes nothing more. Whether all that was taken is written, within this time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._dropped or self._closing or self._now is not None):
                    self._changed.wait()
                entry, now, self._now = None, self._now, None
                if now is not None:
                    pass
                elif self._waiting:
                    entry = self._waiting.popleft()
                    self._chars -= len(entry.message)
                elif self._dropped:
                    self._unwritten += self._dropped
                    self._dropped = 0
                else:
                    return
            if now is None:
                self._write(entry)
            elif self._show is not None:
                with contextlib.suppress(OSError):
                    self._show(now)

    def _write(self, entry: Entry | None) -> None:
        """First what could not be written before, as a number."""
        if self._unwritten and self._try(_lost(self._unwritten)):
            self._unwritten = 0
        if entry is not None and (self._unwritten or not self._try(entry)):
            self._unwritten += 1

    def _try(self, entry: Entry) -> bool:
        for way in self._ways:
            try:
                way(entry)
            except OSError:
                continue
            return True
        return False


def _lost(count: int) -> Entry:
    message = f"… {count} {'line was' if count == 1 else 'lines were'} dropped because nothing read the log"
    return Entry(time.time(), logging.WARNING, "lines_dropped", message, {"count": count})

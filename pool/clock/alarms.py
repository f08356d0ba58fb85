"""Who is to be called when: instants in one heap, and what is to be called in this turn.

A component has an alarm and sets it when something arises. What is not due costs nothing.
"""

import heapq
import math
import time
from collections.abc import Callable

__all__ = ["Alarm", "Alarms"]


class Alarm:
    """Calls one function, once for all that it was set for meanwhile. `Alarms` makes it.

    Whoever is called finds out what is to be done: nothing, maybe, for what was wanted then may be over.
    """

    __slots__ = ("_alarms", "_call", "_entry", "_is_due", "_number", "instant", "is_asked")

    def __init__(self, alarms: "Alarms", number: int, call: Callable[[], None]) -> None:
        self._alarms = alarms
        self._number = number
        self._call = call
        self._entry: _Entry | None = None  # of the heap; any other there with this alarm is out of date
        self._is_due = False  # among those that are being called
        self.instant = math.inf
        """The earliest that `by` was told and that has not come; infinite where there is none."""
        self.is_asked = False
        """Whether `soon` was called, and it not yet."""

    def by(self, instant: float) -> None:
        """Called as soon as this instant has passed. Does nothing where it is set to an earlier one already."""
        if instant < self.instant:
            self.instant = instant
            self._alarms._push(self, instant)

    def soon(self) -> None:
        """Called in this turn, after what is ready; in the next, without a wait, where this turn's calls have begun."""
        if not self.is_asked:
            self.is_asked = True
            self._alarms.asked.append(self)

    def clear(self) -> None:
        """Not called for anything before."""
        self.instant, self._entry, self._is_due = math.inf, None, False
        if self.is_asked:
            self.is_asked = False
            self._alarms.asked.remove(self)


_Entry = tuple[float, int, Alarm]


class Alarms:
    """Setting and calling one cost the logarithm of their number, and a turn in which none is due nothing."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._heap: list[_Entry] = []
        self.asked: list[Alarm] = []
        """Those that are to be called in this turn, or else the next, whatever the time."""
        self._made = 0
        self._pushed = 0

    def alarm(self, call: Callable[[], None]) -> Alarm:
        """Of several that are due in a turn the one that was made first is called first."""
        self._made += 1
        return Alarm(self, self._made, call)

    def left_s(self, most_s: float) -> float:
        """Until the next call, but for at most `most_s`; 0 where one is due."""
        if self.asked:
            return 0.0
        heap = self._heap
        while heap and heap[0][2]._entry is not heap[0]:
            heapq.heappop(heap)
        if not heap:
            return most_s
        left_s = heap[0][0] - self._clock()
        return most_s if left_s > most_s else left_s if left_s > 0.0 else 0.0

    def call_due(self) -> None:
        """Calls each that is due, once. What they set meanwhile is due in another turn at the earliest."""
        heap = self._heap
        if not self.asked and not (heap and heap[0][0] <= self._clock()):
            return
        due, self.asked = self.asked, []
        for alarm in due:
            alarm.is_asked, alarm._is_due = False, True
        now = self._clock()
        while heap and heap[0][0] <= now:
            entry = heapq.heappop(heap)
            alarm = entry[2]
            if alarm._entry is entry:
                alarm.instant, alarm._is_due = math.inf, True
                due.append(alarm)  # maybe for the second time, which calls nobody
        if len(due) > 1:
            due.sort(key=_number)
        for alarm in due:
            if alarm._is_due:  # an earlier one may have cleared it
                alarm._is_due = False
                alarm._call()

    def _push(self, alarm: Alarm, instant: float) -> None:
        self._pushed += 1
        alarm._entry = (instant, self._pushed, alarm)
        heapq.heappush(self._heap, alarm._entry)
        # Entries that are out of date stay until they surface; rebuild before they outnumber the others.
        if len(self._heap) > 64 + 2 * self._made:
            self._heap = [entry for entry in self._heap if entry[2]._entry is entry]
            heapq.heapify(self._heap)


def _number(alarm: Alarm) -> int:
    return alarm._number

"""Instants that the core waits for, by key."""

import heapq
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable

__all__ = ["Timers"]


STEP_S = 0.125  # keys share a queue whose time-outs differ by less: clients send what is left of theirs


class _Queue:
    """Keys that are set for nearly the same time-out, none for an earlier instant than the one before it."""

    __slots__ = ("keys", "last", "step")

    def __init__(self, step: float) -> None:
        self.step = step
        self.keys: OrderedDict[Hashable, None] = OrderedDict()
        self.last = -math.inf


class Timers:
    """One instant a key. Setting, clearing and popping cost the logarithm of their number, where a queue counts as one.

    Who waits for them is told by `wake` of each instant that is earlier than the earliest it knows of: than the last
    one that it was told, or what `next` has returned since.
    """

    def __init__(self) -> None:
        self.wake: Callable[[float], object] = _nobody
        self._instants: dict[Hashable, tuple[float, int, _Queue | None]] = {}
        self._queues: dict[float, _Queue] = {}  # by step; each has one entry in the heap, none too late
        self.heap: list[tuple[float, int, Hashable | _Queue]] = []
        self._count = 0
        self._known = math.inf

    def __contains__(self, key: Hashable) -> bool:
        return key in self._instants

    def set(self, key: Hashable, instant: float, timeout_s: float | None = None) -> None:
        """`timeout_s`: how long it is set for, where many keys are set for nearly as long."""
        self._count = count = self._count + 1
        instants, queues = self._instants, self._queues
        queue = None
        if timeout_s is not None:
            step = timeout_s // STEP_S
            queue = queues[step] if step in queues else _Queue(step)
            if instant < queue.last:
                queue = None
        if key in instants and (former := instants[key][2]) is not None:
            del former.keys[key]
        instants[key] = (instant, count, queue)
        if queue is None:
            self._push((instant, count, key))
        else:
            queue.keys[key] = None
            queue.last = instant
            if queue.step not in queues:
                queues[queue.step] = queue
                self._push((instant, count, queue))
        if instant < self._known:
            self._known = instant
            self.wake(instant)

    def advance(self, key: Hashable, instant: float) -> None:
        """Sets an instant that is set already to an earlier one; does nothing otherwise."""
        if key in self._instants and instant < self._instants[key][0]:
            self.set(key, instant)

    def clear(self, key: Hashable) -> None:
        instants = self._instants
        if key in instants:
            if (queue := instants[key][2]) is not None:
                del queue.keys[key]
            del instants[key]

    def next(self) -> float | None:
        """The earliest instant, or None."""
        self._surface()
        self._known = self.heap[0][0] if self.heap else math.inf
        return self.heap[0][0] if self.heap else None

    def pop_due(self, now: float) -> Hashable | None:
        """Removes and returns the key with the earliest instant that is not after `now`, or None."""
        if not self.heap or self.heap[0][0] > now:
            return None
        self._surface()
        if not self.heap or self.heap[0][0] > now:
            return None
        first = self.heap[0][2]
        key = next(iter(first.keys)) if isinstance(first, _Queue) else first
        self.clear(key)
        return key

    def _surface(self) -> None:
        """What is first in the heap is the first that is set."""
        heap = self.heap
        while heap:
            instant, count, first = heap[0]
            if not isinstance(first, _Queue):
                if self._instants.get(first, _NEVER)[1] == count:
                    return
                heapq.heappop(heap)
            elif not first.keys:
                heapq.heappop(heap)
                del self._queues[first.step]
            else:
                instant, number, _ = self._instants[next(iter(first.keys))]
                if number == count:
                    return
                heapq.heapreplace(heap, (instant, number, first))

    def _push(self, entry: tuple[float, int, Hashable | _Queue]) -> None:
        heapq.heappush(self.heap, entry)
        # What was cleared stays in the heap until it surfaces; rebuild before it outnumbers the rest.
        if len(self.heap) > 64 + 2 * len(self._instants):
            self._rebuild()

    def _rebuild(self) -> None:
        self._queues = {step: queue for step, queue in self._queues.items() if queue.keys}
        alone = [(instant, count, key) for key, (instant, count, queue) in self._instants.items() if queue is None]
        first = [(*self._instants[next(iter(queue.keys))][:2], queue) for queue in self._queues.values()]
        self.heap = [*alone, *first]
        heapq.heapify(self.heap)


_NEVER = (math.inf, 0, None)


def _nobody(_: float) -> None:
    """Nobody waits."""

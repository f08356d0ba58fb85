"""The numbers of a client's calls, as its pool knows them: names are sent once, see `pool.wire.calls`."""

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from pool.wire.calls import CALLS_BYTES, MOST_CALLS, Names, call_bytes
from pool.wire.codec import pack

if TYPE_CHECKING:
    from pool.client.outstanding import Job

__all__ = ["Call", "Calls"]

_Key: TypeAlias = tuple[str, str | None, tuple[str, ...] | None, str | None, int | str | None, bool, bytes]


class Call:
    """`names` and `table` are packed. `jobs`: how many have it. `is_told`: the pool has its names."""

    __slots__ = ("is_told", "jobs", "key", "names", "number", "size_bytes", "table")

    def __init__(self, key: _Key, number: int, names: bytes, size_bytes: int) -> None:
        self.key = key
        self.number = number
        self.names = names
        self.table = key[-1]
        self.size_bytes = size_bytes
        self.jobs = 0
        self.is_told = False


class Calls:
    """Used by the I/O thread alone."""

    def __init__(self, forget: Callable[[int], None]) -> None:
        """`forget` tells the pool that no more jobs of a call come."""
        self._forget = forget
        self.clear()

    def __len__(self) -> int:
        return len(self._calls)

    def clear(self) -> None:
        """The pool is gone: another one knows none of them."""
        self._calls: OrderedDict[_Key, Call] = OrderedDict()  # what was used last is the last
        self._size_bytes = 0
        self._last = 0
        self.waiting: OrderedDict[_Key, dict[int, Job]] = OrderedDict()  # by call, in the order of the first jobs
        self._waits_for: dict[int, _Key] = {}  # by job

    def of(self, job: "Job") -> "Call | None":
        """That of a job. None: the pool keeps no more of them, and each has jobs there, so it waits: see `granted`.

        Only jobs of the same call wait for it, and what waits longest gets the next room.
        """
        if job.call is not None:  # it has waited
            return job.call
        request, table = job.request, job.payload[0]
        assert isinstance(table, bytes)
        counted = job.rows is not None
        key = (request.model, request.signature, request.outputs, request.device, request.version, counted, table)
        call = self._calls.get(key)
        if call is not None:
            self._calls.move_to_end(key)
        elif self.waiting or (call := self._new(key, len(job.payload) - 1)) is None:
            self.waiting.setdefault(key, {})[job.number] = job
            self._waits_for[job.number] = key
        return call

    def waits(self, job: "Job") -> bool:
        """Whether it waits for room for its call."""
        return job.number in self._waits_for

    def give_up(self, job: "Job") -> bool:
        """It waits no more, if it did."""
        key = self._waits_for.pop(job.number, None)
        if key is None:
            return False
        jobs = self.waiting[key]
        del jobs[job.number]
        if not jobs:
            del self.waiting[key]
        return True

    def granted(self) -> "list[Job]":
        """Those that need not wait any more, in their order: the room for their calls is kept for them."""
        granted: list[Job] = []
        while self.waiting:
            key, jobs = next(iter(self.waiting.items()))
            call = self._new(key, len(next(iter(jobs.values())).payload) - 1)
            if call is None:
                break
            del self.waiting[key]
            for job in jobs.values():
                del self._waits_for[job.number]
                job.call = call
                call.jobs += 1
                granted.append(job)
        return granted

    def unknown(self, call: Call) -> None:
        """The pool does not know it any more. Its next job gets another number, and names with it."""
        if self._calls.get(call.key) is call:
            self._drop(call)

    def _new(self, key: _Key, tensors: int) -> Call | None:
        names = Names(*key[:-1])
        size_bytes = call_bytes(names, len(key[-1]), tensors)
        while len(self._calls) >= MOST_CALLS or self._size_bytes + size_bytes > CALLS_BYTES:
            idle = next((each for each in self._calls.values() if not each.jobs), None)
            if idle is None:
                return None
            self._drop(idle)
            if idle.is_told:
                self._forget(idle.number)
        self._last += 1
        call = self._calls[key] = Call(key, self._last, pack(names), size_bytes)
        self._size_bytes += size_bytes
        return call

    def _drop(self, call: Call) -> None:
        del self._calls[call.key]
        self._size_bytes -= call.size_bytes

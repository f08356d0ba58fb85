"""The jobs that wait for the same slots: those of one model, or of one model pinned to one device or version.

    Line ─┬─ clients, by priority and by the device time that each has used ─► the job that leads the next batch
          ├─ keys ─► the jobs that may run together with it
          └─ retries, suspects: parts that have been out before, and go first

No operation costs more when more jobs wait; choosing a leader costs the logarithm of the clients that wait.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pool.core.jobs import Job, Part
from pool.core.queue.keys import Client, Jobs, Key
from pool.core.remembered import MOST_NAME_BYTES

if TYPE_CHECKING:
    from pool.core.fleet import Slot
    from pool.core.queue.models import Model

__all__ = ["Line"]

MOST_IDLE_KEYS = 256  # keys of a line that are kept while no job of theirs waits
MOST_IDLE_CLIENTS = 256
FEW = 64  # jobs of a client; the dict of so many takes 3 KiB
LOOK_EVERY = 64  # so often entries of a heap that count no more are looked for


class Level:
    """The jobs of one client with one priority, in the order in which they came, and what they will surely cost."""

    __slots__ = ("jobs", "work_s")

    def __init__(self) -> None:
        self.jobs = Jobs()
        self.work_s = 0.0


class ClientQueue:
    """One client's waiting jobs in one line. `used_s`: the device time it has used by its weight, on the line's scale.

    The connections of an account with a policy are one client here.

    Each level has jobs, but that the last one stays when it is empty: the next job is likely to have its priority.
    One in which many have waited goes: a dict keeps the size that it had at its largest.
    """

    __slots__ = ("entry", "entry_priority", "grown", "levels", "top", "used_s", "waiting")

    def __init__(self, used_s: float) -> None:
        self.levels: dict[int, Level] = {}
        self.waiting = 0  # jobs
        self.grown = False  # more than a few have waited since the levels were made
        self.used_s = used_s
        self.top = 0
        """The highest priority that waits, if any does."""
        self.entry = 0
        self.entry_priority = 0


class Line:
    def __init__(self, model: Model, device: str | None, version: int | None = None) -> None:
        """`device`: the name that its jobs are pinned to, `version`: the one that they want; None where any will do."""
        self.model = model
        self.device = device
        self.version = version
        self.retries: deque[tuple[Part, ...]] = deque()
        self.suspects: deque[Part] = deque()
        self.queued = 0  # waiting jobs; a chunk counts for its weight
        self.by_age = Jobs()
        self._keys: OrderedDict[tuple[str | None, tuple[str, ...] | None, bytes], Key] = OrderedDict()
        self._names_bytes = 0  # of the keys
        self._clients: OrderedDict[bytes, ClientQueue] = OrderedDict()
        self._heap: list[tuple[int, float, int, ClientQueue]] = []
        self._entries = 0
        self.last_led = 0  # the number of its last batch
        self._clock_s = 0.0  # what the last leader's client had used: who comes anew begins here

    # --- in and out ---------------------------------------------------------------------------------------------

    def key(self, signature: str | None, outputs: tuple[str, ...] | None, form: bytes) -> Key:
        name = (signature, outputs, form)
        key = self._keys.get(name)
        if key is None:
            key = self._keys[name] = Key(self, signature, outputs, form, self.model.cost(name))
            self._names_bytes += key.names_bytes
            self._forget_keys()
        return key

    def put(self, job: Job) -> None:
        """Its rows that are not cut yet wait for a lane from now on."""
        share, priority, clients = job.client.share, job.priority, self._clients
        # A client that comes anew begins with those who wait, whatever their charges were corrected by.
        start_s = self._clock_s
        if self._heap and self._heap[0][1] < start_s:
            start_s = self._heap[0][1]
        if share not in clients:
            queue = clients[share] = ClientQueue(start_s)
            self._forget_clients()
        else:
            queue = clients[share]
            if not queue.waiting:
                clients.move_to_end(share)
                if start_s > queue.used_s:
                    queue.used_s = start_s
                if priority not in queue.levels:
                    queue.levels.clear()
        if not queue.waiting or job.priority > queue.top:
            queue.top = priority
        queue.waiting += 1
        if queue.waiting > FEW:
            queue.grown = True
        if priority in queue.levels:
            level = queue.levels[priority]
        else:
            level = queue.levels[priority] = Level()
        if not queue.entry or priority > queue.entry_priority:
            self._enter(queue, priority)
        level.work_s += job.work_s
        if job.place == job.id:
            level.jobs[job.id] = self.by_age[job.id] = job
        else:
            level.jobs.put_back(job)
            self.by_age.put_back(job)
        job.key.add(job)
        self.queued += job.weight

    def take(self, job: Job) -> None:
        """It does not wait any more: all of it is cut, or nobody wants it."""
        queue = self._clients[job.client.share]
        level = queue.levels[job.priority]
        if level.jobs.back:
            level.jobs.drop(job)
        else:
            del level.jobs[job.id]
        level.work_s -= job.work_s
        queue.waiting -= 1
        if not queue.waiting:
            level.work_s = 0.0
            if queue.grown:
                queue.grown = False
                queue.levels.clear()
        elif not level.jobs:
            del queue.levels[job.priority]
            if job.priority == queue.top:
                queue.top = max(queue.levels)
        if self.by_age.back:
            self.by_age.drop(job)
        else:
            del self.by_age[job.id]
        job.key.remove(job)
        self.queued -= job.weight

    def cut(self, job: Job, stop: int) -> None:
        """Its rows up to `stop` are out; if those are all, it does not wait any more."""
        if stop == job.rows:
            self.take(job)
        elif job.work_s:
            work_s = job.work_s * (stop - job.cut) / (job.rows - job.cut)
            job.work_s -= work_s
            self._clients[job.client.share].levels[job.priority].work_s -= work_s
        job.cut = stop

    def charge(self, client: Client, seconds: float) -> None:
        """A client has used so much device time here; a negative charge corrects an earlier one."""
        client.account.device_s += seconds
        if client.share in self._clients:
            queue = self._clients[client.share]
            queue.used_s += seconds / client.account.weight
            if seconds < 0 and queue.waiting:
                self._enter(queue, queue.top)

    # --- who is next --------------------------------------------------------------------------------------------

    def leader(self) -> Job | None:
        """The first job of the client that has used least, among those with the highest priority."""
        heap = self._heap
        while heap:
            negative, used_s, entry, queue = heap[0]
            if entry != queue.entry:
                heapq.heappop(heap)
            elif not queue.waiting:
                heapq.heappop(heap)
                queue.entry = 0
            elif -negative != queue.top or used_s < queue.used_s:
                self._entries += 1
                queue.entry, queue.entry_priority = self._entries, queue.top
                heapq.heapreplace(heap, (-queue.top, queue.used_s, self._entries, queue))
            else:
                jobs = queue.levels[-negative].jobs
                if jobs.back:
                    return jobs.first()
                for first in jobs:
                    return jobs[first]
        return None

    def led(self, job: Job) -> None:
        """The leader's batch begins: the line's scale moves on to where its client stands."""
        used_s = self._clients[job.client.share].used_s
        if used_s > self._clock_s:
            self._clock_s = used_s

    def oldest(self) -> Job | None:
        """The job that came first."""
        return self.by_age.first() if self.by_age else None

    def waits_since(self) -> float | None:
        """When the job came that came first, of all that wait for anything; None if none does."""
        waiting = [] if (oldest := self.oldest()) is None else [oldest]
        waiting += [key.gathered.first() for key in self.gathering()]
        waiting += [part.job for part in (*(self.retries[0] if self.retries else ()), *list(self.suspects)[:1])]
        return min((job.arrived for job in waiting), default=None)

    def work_before(self, client: Client, priority: int) -> float:
        """Device time that the client's own waiting jobs take, which go before another one of this priority."""
        queue = self._clients.get(client.share)
        if queue is None or not queue.waiting:
            return 0.0
        return sum([level.work_s for above, level in queue.levels.items() if above >= priority])

    def queued_rows(self) -> int:
        """For people: a job without rows counts as one."""
        return sum(job.left or 1 for job in self.by_age.values())

    @property
    def pinned(self) -> bool:
        """Whether not every holder of the model may run its jobs."""
        return self.device is not None or self.version is not None

    def suits(self, slot: Slot) -> bool:
        """Whether the slot, which holds the model, may run its jobs."""
        if self.device is not None and self.device not in slot.names:
            return False
        return self.version is None or slot.versions.get(self.model.name) == self.version

    @property
    def busy(self) -> bool:
        """Whether a lane that may run anything would find work here; suspects need a worker of their own."""
        return bool(self.by_age or self.retries)

    @property
    def empty(self) -> bool:
        """Whether nothing of it waits for anything; some may be out."""
        return not (self.busy or self.suspects or self.gathering())

    def priority(self) -> int:
        """The highest that waits. There is work."""
        leader = self.leader()
        if leader is not None and not self.retries:
            return leader.priority
        highest = [part.job.priority for part in self.retries[0]]
        return max(highest if leader is None else [leader.priority, *highest])

    def gathering(self) -> list[Key]:
        """The keys whose jobs wait for company."""
        return [key for key in self._keys.values() if key.gathered]

    def unleased(self) -> Iterator[Job]:
        """The jobs of which some rows are not out; one may come up twice."""
        yield from list(self.by_age.values())
        for key in list(self._keys.values()):
            yield from list(key.gathered.values())
        for group in (*list(self.retries), tuple(self.suspects)):
            yield from (part.job for part in group if part.wanted)

    # --- within -------------------------------------------------------------------------------------------------

    def _enter(self, queue: ClientQueue, priority: int) -> None:
        self._entries += 1
        queue.entry, queue.entry_priority = self._entries, priority
        heapq.heappush(self._heap, (-priority, queue.used_s, self._entries, queue))
        # Superseded entries stay until they surface; rebuild before they outnumber the others.
        if self._entries % LOOK_EVERY == 0 and len(self._heap) > LOOK_EVERY + 2 * len(self._clients):
            self._heap = [entry for entry in self._heap if entry[2] == entry[3].entry]
            heapq.heapify(self._heap)

    def _forget_keys(self) -> None:
        """Not their costs: the model remembers those."""
        keys = len(self._keys)  # the last one is new, and about to be used
        crowded = keys > MOST_IDLE_KEYS or (self._names_bytes > MOST_NAME_BYTES and keys > 2)
        for _ in range(2 if crowded else 0):
            name, key = next(iter(self._keys.items()))
            if key.idle:
                key.kept = False
                del self._keys[name]
                self._names_bytes -= key.names_bytes
            else:
                self._keys.move_to_end(name)

    def _forget_clients(self) -> None:
        """Those who have not come for longest, with what they have used: a new connection has used nothing either."""
        for _ in range(2 if len(self._clients) > MOST_IDLE_CLIENTS else 0):
            share, queue = next(iter(self._clients.items()))
            if queue.waiting:
                self._clients.move_to_end(share)
            else:
                queue.entry = 0
                del self._clients[share]

    def validate(self) -> None:
        """Raises AssertionError where the books do not agree."""
        assert self.queued == sum(job.weight for job in self.by_age.values())
        by_client = {
            job.id: job
            for queue in self._clients.values()
            for level in queue.levels.values()
            for job in level.jobs.values()
        }
        by_key = {
            job.id: job
            for key in self._keys.values()
            for clients in key.levels.values()
            for jobs in clients.values()
            for job in jobs.values()
        }
        for queue in self._clients.values():
            assert queue.waiting == sum(len(level.jobs) for level in queue.levels.values())
            assert not queue.waiting or all(level.jobs for level in queue.levels.values())
            assert len(queue.levels) < 2 or queue.waiting
        assert by_client.keys() == by_key.keys() == self.by_age.keys()
        for job in self.by_age.values():
            assert job.line is self
            assert job.cut < job.rows or (job.rows == 0 and not job.out), job

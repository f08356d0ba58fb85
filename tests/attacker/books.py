"""What the pool holds, against what it says that it holds: memory, descriptors, threads, processes."""

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np

from attacker.target import MEMORY_BYTES, QUEUE_BYTES, QUEUE_JOBS
from pool import Client
from pool.serve.status import resident_bytes
from pool.wire.records import Status
from support.fault_orders import descriptors, segments
from support.pool_process import PoolProcess
from support.processes import eventually

__all__ = ["Books", "own_lines"]

MIB = 1 << 20
FORGOTTEN_S = 60.0  # the pool calls a client gone that has said nothing for 30 s
PIPE_BYTES = 8 * MIB  # in one client's pipe, before its outbox; there are as many as do not read
PIPES = 6
USUAL_JOBS = 500
MOST_REASONS = 201  # and one for the others
# What is on nobody's account, and bounded all the same. Under way: what libzmq has read of each connection and the pool
# has not, 64 messages; of those sent without waiting the largest have half a megabyte, and one peer at a time sends
# them. Kept: names of past jobs, costs, idle keys and calls a MiB each, 4,096 clients that rest, and the heap's holes.
UNDER_WAY_BYTES = 64 * MIB
KEPT_BYTES = 20 * MIB


@dataclass(frozen=True, slots=True)
class _Holding:
    """What a process has that can be counted."""

    descriptors: int
    segments: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> "_Holding":
        return cls(descriptors(pid), segments(pid), len(os.listdir(f"/proc/{pid}/task")))

    def beyond(self, before: "_Holding") -> list[str]:
        """What there is more of."""
        return [f"{what}: {number}" for what, number in asdict(self).items() if number > asdict(before)[what]]


def _await(what: str, found: Callable[[], object], expected: object) -> None:
    """Until it is as it should be; else an assertion says what it is."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: found() == expected, FORGOTTEN_S)
        return
    raise AssertionError(f"{what}: still {found()} after {FORGOTTEN_S:g} s, where {expected} was expected")


class Books:
    """Opened before the attack, when nobody else is there. `most_bytes`: the most that was held of each account."""

    def __init__(self, pool: PoolProcess, client: Client) -> None:
        self._pool = pool
        self._client = client
        self._workers = self._incarnations(client.status())
        with pool.client() as other:  # what a process holds for good once it has had jobs, many and large ones
            list(other.map("rows", [np.zeros(1, np.float32)] * USUAL_JOBS, signature="double"))
            for slot in range(len(self._workers)):
                other.run("echo", np.array([bytes(MIB)], object), signature="string", device=f"slot:{slot}")
        _await("lent bytes", lambda: client.status().lent_bytes, 0)
        self._held = {pid: _Holding.of(pid) for pid in (pool.pid, *pool.workers())}
        self._rss = resident_bytes(pool.pid) or 0
        self.most_bytes = dict.fromkeys(("grown", "queue", "unread", "lent", "calls", "on no account"), 0)
        self.after_bytes: list[int] = []

    def look(self) -> None:
        """While they attack: nothing is beyond its bound, and no memory is on nobody's account."""
        grown = (resident_bytes(self._pool.pid) or 0) - self._rss
        status = self._client.status()
        queue, unread, lent = status.queue.bytes, status.unread_bytes, status.lent_bytes
        calls = status.call_bytes + status.chunk_bytes
        found = {
            "grown": grown,
            "queue": queue,
            "unread": unread,
            "lent": lent,
            "calls": calls,
            "on no account": grown - queue - unread - calls,
        }
        self.most_bytes = {what: max(found[what], most) for what, most in self.most_bytes.items()}
        assert queue <= QUEUE_BYTES, status.queue
        assert status.queue.jobs <= QUEUE_JOBS, status.queue
        assert lent <= MEMORY_BYTES, lent
        assert len(status.refused) <= MOST_REASONS, "reasons are kept that somebody invents"
        assert unread <= QUEUE_BYTES + PIPES * PIPE_BYTES, unread
        accounts = queue + unread + calls
        assert grown <= accounts + UNDER_WAY_BYTES + KEPT_BYTES, f"{grown} bytes, {accounts} on account"
        self._look_at_workers(status)

    def after(self) -> None:
        """After a round: what grew is on an account, but for what is kept."""
        _await("memory that is on no account", lambda: max(0, self._grown() - self._accounts() - KEPT_BYTES), 0)
        self.after_bytes.append(self._grown())
        self._look_at_workers(self._client.status())
        assert self._pool.running.poll() is None, "the pool has ended"

    def close(self) -> None:
        """When all others are gone: every account is at zero, and nothing is held that was not before."""
        # The books' own client has said nothing of calls.
        what = "jobs, their bytes, unread bytes, lent bytes, bytes of calls and of chunks"
        _await(what, self._totals, (0, 0, 0, 0, 0))
        for pid, before in self._held.items():
            _await(f"more than {before} in {pid}", lambda pid=pid, before=before: _Holding.of(pid).beyond(before), [])  # type: ignore[misc]
        self.after()
        status = self._client.status()
        failed = [reason for reason in status.refused if "the pool failed" in reason]
        assert not failed, failed
        assert status.refused, "nobody has attacked"
        bad = [line for line in own_lines(self._pool) if re.search(r"\[(error|critical)\]|^Traceback", line)]
        bad = [line for line in bad if "not reloaded: " not in line]  # the answer to who asked for it
        assert not bad, bad

    def _look_at_workers(self, status: Status) -> None:
        assert self._incarnations(status) == self._workers, "a worker has ended"

    def _incarnations(self, status: Status) -> list[tuple[int | None, int, str]]:
        return [(slot.pid, slot.incarnation, slot.state) for slot in status.slots]

    def _grown(self) -> int:
        return (resident_bytes(self._pool.pid) or 0) - self._rss

    def _totals(self) -> tuple[int, int, int, int, int]:
        status = self._client.status()
        queue = status.queue
        calls = status.call_bytes + status.chunk_bytes
        return queue.jobs, queue.bytes, status.unread_bytes, status.lent_bytes, calls

    def _accounts(self) -> int:
        _, queue, unread, _, calls = self._totals()
        return queue + unread + calls


def own_lines(pool: PoolProcess) -> list[str]:
    """Of its log, without what its workers print."""
    return [line for line in pool.text().splitlines() if " | " not in line]

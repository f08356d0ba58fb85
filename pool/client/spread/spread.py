"""Several pools behind one client: each job goes to the connection of one of them.

    run, submit, map ─► connection ─ `Choice` ─► an ordinary `Connection` ─► a pool
                            ▲                         │ it is lost, stops, is full, or lacks the model
                            └───────── onward ◄───────┘
    the thread    makes connections, asks the pools what they offer, and moves jobs from one to another

A caller who waits for nothing but his job (`run`) moves it himself. For all others the thread does, which no interrupt
and no done-callback can keep from it: so a job that moves is never forgotten and never sent twice.
"""

from __future__ import annotations

import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pool.client.connection import Connection
from pool.client.dispatch import Elsewhere
from pool.client.moved import again, rebind
from pool.client.outstanding import Job, Withdrawal
from pool.client.peer import Peer
from pool.client.request import Request
from pool.client.shared_memory import Piece, SharedMemory
from pool.client.spread.choice import Choice, Pool, PoolState
from pool.client.spread.member import SILENT_S, Member
from pool.client.spread.survey import Survey
from pool.client.wait import Wait
from pool.errors import InvalidInput, ModelNotFound, Overloaded, PoolError, PoolUnreachable
from pool.wire.session_runs import SESSION_SIGNATURES

__all__ = ["Spread"]

JOIN_S = 2.0
STATE = "keeps its state there, so no other pool takes its jobs"
RENEWAL_S = 0.005  # the thread makes another connection for one that has ended
MOST_TRIED = 1  # a job that finds no room is tried at one other pool
LOOK_S = 0.25  # how often the pools that owe something are looked at
PROBE_S = 1.0  # two of the pools that have told nothing for so long are asked …
IDLE_PROBE_S = 15.0  # … or for so long, if no job came either
IDLE_S = 30.0


log = logging.getLogger("pool.client")


class Spread:
    """`lock` guards the choice. Whoever holds it takes no other lock and calls nobody."""

    def __init__(self, peers: Sequence[Peer], spin_s: float = 0.0) -> None:
        """`spin_s`: as in `Connection`."""
        self.lock = threading.RLock()
        self.memory = SharedMemory()
        """Of no pool: what lies there is copied for the one that gets it."""
        self.spin_s = spin_s
        self.peers = {peer.key: peer for peer in peers}
        """By their keys."""
        self._choice = Choice(self.peers, random.Random(), self._near)
        self._members: dict[str, Member] = {}
        self._leaving: list[Member] = []  # those that are none of the pools any more, and still answer
        self._thread: threading.Thread | None = None
        self._bell = Wait()
        self._moving: deque[tuple[Job, PoolError]] = deque()
        self._used = 0.0
        self._probed = 0.0
        self._closed = self._released = False
        self._over = False  # nobody places what is to move any more

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def _near(self) -> set[str]:
        return {key for key, peer in self.peers.items() if peer.is_near}

    # --- where a job goes ---------------------------------------------------------------------------------------

    def connection(self, request: Request) -> Connection:
        """For a job of it. Raises `PoolUnreachable`, `ModelNotFound`, or `InvalidInput` for one of a device."""
        if request.device is not None:
            raise InvalidInput(
                f"device {request.device!r:.80}: a device belongs to one pool, and this client has"
                f" {len(self.peers)}; submit the job with one of `client.pools`, or give one --endpoint"
            )
        self._used = now = time.monotonic()
        if not self._members:
            self._begin(now)
        with self.lock:  # else a pool that comes in between is neither there nor away
            connection = self._next(request, now, ()) or self._awaited(request, now)
            if connection is None:
                raise self._nowhere(request)
        return connection

    def home(self, model: str, *, private: bool) -> Callable[[], Connection]:
        """The connections to the pool that a session keeps to: that of its model, or of a private one any that serves.

        What is returned raises as `connection` does.
        """
        chosen: list[str] = []

        def connection() -> Connection:
            request = Request(model)
            if not chosen:
                with self.lock:
                    self._choice.forget_last()
                found = self.connection(request)  # there are members now
                with self.lock:
                    pool = None if private else self._choice.keeper(model, None, time.monotonic())
                    there = [each for each, member in self._members.items() if member.connection is found]
                if private:
                    chosen.extend(there)
                    return found
                endpoint = None if pool is None else pool.endpoint
            else:
                endpoint = chosen[0]
            member = None if endpoint is None else self._members.get(endpoint)
            if member is None or member.connection is None:
                raise self._nowhere(request)
            return member.connection

        return connection

    def replicas(self, model: str) -> int:
        """How many workers of the pools that serve have it, as far as these have told."""
        with self.lock:
            told = [pool.offers or {} for pool in self._choice.pools.values() if pool.state is PoolState.SERVING]
        return sum(offers[model].slots for offers in told if model in offers)

    def answers(self, what: str, within_s: float) -> dict[str, bytes | PoolError]:
        """What each pool answers, by its key; of one that gives no answer, the error. Asks all at once.

        Where no pool is there, the first is waited for as long as for a connection, but for `within_s` at most. A pool
        that is away, or silent, is not waited for while others answer.
        """
        now = time.monotonic()
        self._begin(now)
        first_s = max(peer.connect_timeout_s for peer in self.peers.values())
        found = Survey(what, now + first_s, now + within_s).answers(lambda: self._members)
        self.wake()  # a pool that is found to be silent gets no further job
        return found

    def _next(self, request: Request, now: float, tried: Sequence[Pool]) -> Connection | None:
        """Where a job goes now, if there is a pool for it."""
        with self.lock:
            while (pool := self._choice.pick(request.model, request.version, now, tried)) is not None:
                connection = self._members[pool.endpoint].connection
                if connection is not None and not connection.lost:
                    return connection
                self._choice.becomes(pool, PoolState.SOUGHT)
        return None

    def _awaited(self, request: Request, now: float) -> Connection | None:
        """Where it waits for a pool."""
        with self.lock:
            pool = self._choice.awaited(request.model, request.version, now)
            member = None if pool is None else self._members.get(pool.endpoint)
        return None if member is None else member.connection

    def _nowhere(self, request: Request) -> PoolError:
        with self.lock:
            serve = any(pool.state is PoolState.SERVING for pool in self._choice.pools.values())
        if serve:
            pools = f"the {len(self.peers)} pools of this client"
            return ModelNotFound(f"no model {request.model!r:.100} in {pools}")
        return self._unreachable()

    def _unreachable(self) -> PoolUnreachable:
        return PoolUnreachable(f"none of the pools at {', '.join(self.peers)} can be reached")

    # --- where it goes next -------------------------------------------------------------------------------------

    def run(
        self,
        request: Request,
        encode: Callable[[SharedMemory], tuple[int | None, Sequence[bytes | Piece]]],
        began: float,
        *,
        patient: bool,
    ) -> Any:
        """As `Connection.run`. `encode` gives rows and payload, of which large tensors lie in that memory."""
        connection = self.connection(request)
        rows, payload = encode(connection.shared_memory)
        wait = Wait()
        job = connection.job(wait, request, rows, payload, began, patient)
        while True:
            outcome = connection.perform(wait, job)
            if not isinstance(outcome, PoolError):
                return outcome
            if not self._may_go_on(job, outcome, time.monotonic(), connection.lost):
                raise outcome
            while (following := self._destination(job, outcome, time.monotonic())) is not None and following.lost:
                time.sleep(RENEWAL_S)
            if following is None:
                raise self._last_word(job, outcome)
            connection, wait = following, Wait()
            [job] = again(job)
            job.future = wait
            connection.adopt(job)

    def onward(self, job: Job, error: PoolError, lost: bool) -> bool:
        """As `Member.onward`."""
        now = time.monotonic()
        if not self._may_go_on(job, error, now, lost):
            return False
        if self._following(job, error, now) is not None:
            self._move(job, error)
        elif self._closed or (isinstance(error, Overloaded) and job.patient):
            return False
        else:
            job.future.finish(self._last_word(job, error))
        return True

    def elsewhere(self, job: Job, why: PoolError) -> bool:
        """As `Member.elsewhere`."""
        if _is_kept(job) or self._next(job.request, time.monotonic(), job.tried) is None:
            return False
        self._move(job, why)
        return True

    def _move(self, job: Job, error: PoolError) -> None:
        if type(job.future) is Wait:
            job.future.finish(error)
            return
        self._moving.append((job, error))
        self.wake()
        if self._over:
            self._end_moving()

    def _may_go_on(self, job: Job, error: PoolError, now: float, lost: bool) -> bool:
        """Whether another pool may answer it otherwise; notes what this end of it tells of the pool where it was."""
        assert job.at is not None
        pool, request = job.at.pool, job.request
        with self.lock:
            if lost:
                self._choice.becomes(pool, PoolState.SOUGHT)
            elif isinstance(error, ModelNotFound):
                self._choice.has_not(pool, request.model, request.version, now)
            elif isinstance(error, Overloaded):
                job.tried = tuple(dict.fromkeys((*job.tried, pool)))  # its caller may come here a second time
            elif not isinstance(error, PoolUnreachable):
                return False
            elif type(error) is not Elsewhere:
                self._choice.becomes(pool, PoolState.DRAINING)
        return True

    def _following(self, job: Job, error: PoolError, now: float) -> Connection | None:
        """Where a job goes that has ended in this error where it was. None: that is its end."""
        if self._closed or job.future.is_cancelled or job.at is None:
            return None
        full = isinstance(error, Overloaded)
        if _is_kept(job):
            return None if full or isinstance(error, ModelNotFound) else self._awaiting(job.at, job.submitted, now)
        if full and len(job.tried) > MOST_TRIED:
            return None
        tried = job.tried if full else ()  # else one that had no room is better than none
        with self.lock:  # as in `connection`
            found = self._next(job.request, now, tried)
            if found is not None:
                return found
            pool = self._choice.awaited(job.request.model, job.request.version, now, tried)
        member = None if pool is None else self._members.get(pool.endpoint)
        if not full:
            return self._awaiting(member, job.submitted, now)
        # Of a pool that may have room, only the first coming is waited for: one that has gone may stay away.
        return None if member is None or member.was_there else self._awaiting(member, member.away_since, now)

    def _awaiting(self, member: Member | None, since: float, now: float) -> Connection | None:
        """The connection on which a job waits for this pool, if it still does."""
        if member is None or member is not self._members.get(member.pool.endpoint) or not member.is_awaited(since, now):
            return None
        return member.connection

    def _destination(self, job: Job, error: PoolError, now: float) -> Connection | None:
        """As `_following`. One that waits for room goes back, if the pool that it was to go to has gone meanwhile."""
        found = self._following(job, error, now)
        if found is None and job.patient and isinstance(error, Overloaded) and job.at is not None:
            back = job.at.connection
            found = None if back is None or back.lost or self._closed or job.future.is_cancelled else back
        return found

    def _last_word(self, job: Job, error: PoolError) -> PoolError:
        """How a job ends that goes nowhere."""
        if not isinstance(error, PoolUnreachable) or STATE in str(error):
            return error
        if _is_kept(job):
            return PoolUnreachable(f"{error}; the session {STATE}")
        with self.lock:
            keeps = self._choice.keeps_state(job.request.model)
        return PoolUnreachable(f"{error}; model {job.request.model} {STATE}") if keeps else error

    def withdraw(self, withdrawal: Withdrawal) -> None:
        """A job that has moved is withdrawn where it is; members of chunks, which may be anywhere, everywhere."""
        of = withdrawal.of
        if isinstance(of, Job) and of.left_in is None:
            while of.onward is not None:
                of = of.onward
            if of.at is not None and (connection := of.at.connection) is not None:
                connection.leave_word(Withdrawal(of))
            return
        for member in (*self._members.values(), *self._leaving):
            if member.connection is not None:
                member.connection.leave_word(withdrawal)

    # --- life ---------------------------------------------------------------------------------------------------

    def _begin(self, now: float) -> None:
        """The first job makes the connections. Raises `PoolUnreachable` where there is no thread left."""
        with self.lock:
            if self._closed or self._members:
                return
            thread = threading.Thread(target=self._main, name="pool-spread", daemon=True)
            pools = self._choice.pools
            members = {each: Member(self, pools[each], peer, now) for each, peer in self.peers.items()}
            for member in members.values():
                member.connect()
            self._members, self._thread = members, thread
            try:
                thread.start()
            except RuntimeError as error:
                for connection in self._connections():
                    connection.release()
                self._members = {}
                raise PoolUnreachable(f"cannot make a connection: {error}") from None

    def replace(self, peers: Sequence[Peer]) -> None:
        """These are the pools from now on."""
        now = time.monotonic()
        with self.lock:
            self.peers = {peer.key: peer for peer in peers}
            self._choice.replace(self.peers, self._near)
            if not self._members:
                return
            left = [member for member in self._members.values() if member.pool.endpoint not in self.peers]
            self._members = {
                endpoint: self._members.get(endpoint) or Member(self, self._choice.pools[endpoint], peer, now)
                for endpoint, peer in self.peers.items()
            }
            self._leaving = [*(each for each in self._leaving if each.is_there), *left]
        for member in left:
            if member.connection is not None:
                member.connection.hand_over()
                member.connection.release()
        self.wake()

    def wake(self) -> None:
        """Takes no lock: finalizers call it."""
        self._bell.ring()

    def release(self) -> None:
        """Nobody will submit any more. Takes no lock."""
        self._released = True
        self.wake()

    def close(self) -> None:
        """Ends what is outstanding."""
        self._closed = True
        self.wake()
        connections = self._connections()
        for connection in connections:
            connection.begin_close()
        for connection in connections:
            connection.close()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(JOIN_S)
        for connection in self._connections():  # it may have been about to make one
            if connection not in connections:
                connection.close()

    def abandon_after_fork(self) -> list[Connection]:
        """In a forked child: all of it is the parent's. The next job begins anew."""
        self.lock = threading.RLock()
        error = PoolUnreachable("this job was submitted before the fork, so its answer goes to the parent process")
        for job, _ in self._moving:
            job.abandon_after_fork(error)
        self._moving.clear()
        connections = self._connections()
        for connection in connections:
            connection.abandon_after_fork()
        self._leaving = []
        self._members, self._thread, self._bell, self._over = {}, None, Wait(), False
        self._choice = Choice(self.peers, random.Random(), self._near)
        return connections

    def _connections(self) -> list[Connection]:
        members = (*self._members.values(), *self._leaving)
        return [member.connection for member in members if member.connection is not None]

    # --- the thread ---------------------------------------------------------------------------------------------

    def _main(self) -> None:
        due = 0.0
        try:
            while not self._closed:
                self._bell.sleep(max(0.0, due - time.monotonic()))
                now = time.monotonic()
                due = now + LOOK_S
                try:
                    self._work(now)
                    if self._released and self._ends():
                        break
                    due = now + self._pause_s()
                except Exception:  # whatever a pool has said: jobs wait for this thread
                    log.exception("a turn with several pools failed; the next one follows")
        finally:
            self._over = True
            self._end_moving()

    def _work(self, now: float) -> None:
        for member in list(self._members.values()):
            self._look(member, now)
        for _ in range(len(self._moving)):  # what a connection that has just ended gives back comes after the look
            job, error = self._moving[0]
            try:
                self._place(job, error, now)
            except Exception:
                job.future.finish(error)
                raise
            finally:
                self._moving.popleft()
        self._probe(now)

    def _end_moving(self) -> None:
        with contextlib.suppress(IndexError):  # whoever moves a job may do it too
            while True:
                job, error = self._moving.popleft()
                job.future.finish(error)

    def _look(self, member: Member, now: float) -> None:
        pool, connection = member.pool, member.connection
        if connection is None:
            member.connect()
            return
        if connection.lost:
            self._becomes(pool, PoolState.SOUGHT)
            if not self._released or self._moving:
                member.lose(now)
            return
        if not connection.has_pool:
            return
        member.arrive(now)
        if (told := member.answer(now)) is not None:
            with self.lock:
                self._choice.told(pool, *told, now)
        if pool.offers is None or (pool.state is PoolState.SOUGHT and not told):
            member.ask(now)
            return
        silent = connection.unanswered_s(now) >= SILENT_S
        was = pool.state
        if was is not PoolState.DRAINING:
            self._becomes(pool, PoolState.SILENT if silent else PoolState.SERVING)
        if was is PoolState.SOUGHT or told:
            self._tell_the_waiting()

    def _becomes(self, pool: Pool, state: PoolState) -> None:
        with self.lock:
            self._choice.becomes(pool, state)

    def _tell_the_waiting(self) -> None:
        """There is another pool, or it has something else: jobs that wait for one that is away may go there."""
        for member in self._members.values():
            if member.pool.state is not PoolState.SERVING and member.connection is not None:
                member.connection.hand_over()

    def _place(self, job: Job, error: PoolError, now: float) -> None:
        if job.onward is not None:  # an interrupt has brought it here twice
            return
        for each in again(job):
            connection = self._destination(job, error, now)
            if connection is None:
                each.future.finish(self._last_word(job, error))
                continue
            job.onward = each
            rebind(each, connection.driver)
            connection.adopt(each)
            connection.post(each)

    def _probe(self, now: float) -> None:
        every_s = PROBE_S if now - self._used < IDLE_S else IDLE_PROBE_S
        if now - self._probed < every_s:
            return
        with self.lock:
            stale = self._choice.to_probe(now, every_s)
        self._probed = now
        for pool in stale:
            if (member := self._members.get(pool.endpoint)) is not None:
                member.ask(now)

    def _pause_s(self) -> float:
        with self.lock:
            pools = list(self._choice.pools.values())
            owing = any(pool.mine for pool in pools)
        owing = owing or any(pool.state is not PoolState.SERVING for pool in pools)
        if owing:
            return LOOK_S
        return PROBE_S if time.monotonic() - self._used < IDLE_S else IDLE_PROBE_S

    def _ends(self) -> bool:
        """The client was dropped: each connection ends with its last answer, and then this thread."""
        connections = self._connections()
        for connection in connections:
            connection.release()
        return not self._moving and all(connection.lost for connection in connections)


def _is_kept(job: Job) -> bool:
    """Whether it is of a session, which has its state in one pool."""
    return job.request.signature in SESSION_SIGNATURES

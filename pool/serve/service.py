"""The loop: sockets, links, exits and timers come in; the scheduler decides; batches and answers go out."""

import logging
import math
import os
import select
import struct
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import zmq
from zmq.backend import zmq_poll

from pool.config import Config
from pool.core.failures import Lie, Refused
from pool.core.jobs import Batch, Call, Job, ModelPolicy
from pool.core.scheduler import Policy, Scheduler
from pool.devices import Device
from pool.log import Log
from pool.serve.clients import MOST_CHANNELS, Client, Entrance, Outbox
from pool.serve.fleet import Fleet, Worker
from pool.serve.quarantine import Quarantine
from pool.serve.questions import Questions
from pool.serve.sockets import read, router, send
from pool.wire.bodies import (
    BATCH,
    GONE,
    HEAD,
    JOINED,
    PART,
    RESENT,
    RUNNING,
    SHARED,
    TOKEN_BYTES,
    Body,
    Kind,
    bodies,
    failure,
    failure_of,
)
from pool.wire.signatures import Signature, signature_name
from pool.wire.specs import BadMessage, fixed_bytes, parse_job

__all__ = ["Service"]

JOB, ANSWER, CANCEL, DONE, RUN = int(Kind.JOB), int(Kind.ANSWER), int(Kind.CANCEL), int(Kind.DONE), int(Kind.RUN)
JOIN_BYTES = HEAD.size + TOKEN_BYTES
LOOK_S = 1.0
RETRY_S = 0.02
MOST_CLIENTS = 1000
POLLIN = int(zmq.POLLIN)

log = logging.getLogger("pool.serve")


class Service:
    """REQUIRES the lock of the endpoint, and the main thread: workers end with the thread that started them."""

    def __init__(
        self, config: Config, seats: list[tuple[Device, list[str]]], path: Path, state: Path, kept: Log
    ) -> None:
        self.config = config
        self.endpoint = f"ipc://{path}"
        self.started = time.monotonic()
        self.is_stopping = False
        self.clients: set[Client] = set()
        self._stop_by = math.inf
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = router(self._context, f"ipc://{path}")
        self._entrance = Entrance(path.with_name(f"{path.name}.link"))
        queue = config.queue
        policy = Policy(queue.max_jobs, queue.max_bytes, queue.max_attempts, config.health.hung_after)
        self.scheduler = Scheduler(policy, self._fail, self._release)
        for model in config.model:
            self.scheduler.add_model(
                model.name,
                ModelPolicy(
                    model.weight,
                    model.max_batch,
                    model.batch_wait or 0.0,
                    model.stateful is True,
                ),
            )
        self._sources: dict[int, Callable[[], None]] = {}
        self._rare = select.epoll()
        self._peers: dict[bytes, Client | Worker] = {}  # by route
        self._tokens: dict[bytes, Client] = {}
        self._outbox: defaultdict[bytes, list[bytes]] = defaultdict(list)  # sent once a turn
        self._unread: dict[bytes, Outbox] = {}  # of channels that take no more now
        self.watch(self._entrance.socket.fileno(), self._client_comes)
        self.fleet = Fleet(config, seats, self.scheduler, f"ipc://{path}", state, self.watch, self.forget)
        self.questions = Questions(
            config, self.endpoint, self.scheduler, self.fleet, self.clients, kept, self.tell, self.stop
        )
        self.fleet.changed = self.questions.models_changed
        self.fleet.gone = self._worker_gone
        self._quarantine = Quarantine(state / "quarantine")
        self.watch(self._quarantine.bell, self._kept)
        self.turned: Callable[[float], float] = lambda _: math.inf
        """Called once a turn with the time, for systemd and for signals; says when to come again."""

    def run(self) -> None:
        """Until the pool has stopped. Raises what `pool.core` raises: then the pool must end."""
        scheduler, fleet, rare = self.scheduler, self.fleet, self._rare
        sources: list[Any] = [(self._router, POLLIN), (rare.fileno(), POLLIN)]
        now = time.monotonic()
        fleet.start(now)
        again_at = self.turned(now)
        while not (self.is_stopping and fleet.is_empty):
            due = min(scheduler.next_timer(), fleet.next_look, again_at, now + LOOK_S)
            if self._unread:
                due = min(due, now + RETRY_S)
            wait_s = due - time.monotonic()
            ready = zmq_poll(sources, math.ceil(wait_s * 1000) if wait_s > 0 else 0)
            now = time.monotonic()
            for source, _ in ready:
                if source is self._router:
                    self._hear(now)
                else:
                    for descriptor, _ in rare.poll(0):
                        if call := self._sources.get(descriptor):
                            call()
            if now >= due or len(ready) > 1 or not ready:
                now = time.monotonic()
                again_at = self._timers(now)
            for batch in scheduler.dispatch(now):
                self._run(batch, now)
            if self._outbox:
                self._send(now)

    def _timers(self, now: float) -> float:
        self.scheduler.expire(now)
        for core, reason in self.scheduler.hung(now):
            self.fleet.kill(self.fleet.by_core[core], f"it hangs: {reason}", now, is_hung=True)
        self.fleet.look(now)
        self.questions.expire(now)
        if self._unread:
            self._retry(now)
        if self.is_stopping:
            self._drain(now)
        return self.turned(now)

    def watch(self, descriptor: int, call: Callable[[], None]) -> None:
        self._sources[descriptor] = call
        self._rare.register(descriptor, select.EPOLLIN)

    def forget(self, descriptor: int) -> None:
        if self._sources.pop(descriptor, None) is not None:
            self._rare.unregister(descriptor)

    # --- what comes on the ROUTER -------------------------------------------------------------------------------

    def _hear(self, now: float) -> None:
        for route, frame in read(self._router):
            peer = self._peers.get(route)
            try:
                if peer is None:
                    self._join(route, frame)
                elif frame is None:
                    raise BadMessage("a message of several frames")
                elif isinstance(peer, Client):
                    for body in bodies(frame):
                        if body.kind == JOB:
                            self._job(peer, route, body, now)
                        else:
                            self._client_says(peer, route, body, now)
                else:
                    self._batch_done(peer, route, frame, now)
            except (BadMessage, Lie, ValueError, struct.error) as error:
                self._cut_off(route, error, now)

    def _cut_off(self, route: bytes, error: Exception, now: float) -> None:
        """A peer that says what no correct peer says loses its link, and a worker its life."""
        peer = self._peers.get(route)
        if isinstance(peer, Client):
            log.warning("client %d (uid %d) is cut off: %s", peer.pid, peer.uid, error)
            self._client_gone(peer)
        elif peer is not None:
            self.fleet.kill(peer, f"it said what no worker says: {error}", now)

    def _join(self, route: bytes, frame: bytes | None) -> None:
        """The only message that an unknown route may send. Whoever sends another one hears that it is gone."""
        if frame is not None and len(frame) == JOIN_BYTES and frame[0] == Kind.JOIN:
            token = frame[HEAD.size :]
            if worker := self.fleet.by_token.get(token):
                self._peers[route] = worker
                self.fleet.lane_comes(worker, route)
                return
            client = self._tokens.get(token)
            if client is not None and len(client.routes) < MOST_CHANNELS:
                self._peers[route] = client
                client.routes.add(route)
                return
        send(self._router, route, [GONE])

    # --- clients ------------------------------------------------------------------------------------------------

    def _client_comes(self) -> None:
        try:
            client = self._entrance.accept()
        except OSError as error:
            log.error("no client can come in: %s", error)
            time.sleep(0.01)  # the backlog keeps the descriptor readable: do not spin
            return
        if client is None:
            return
        if len(self.clients) >= MOST_CLIENTS:
            client.link.close()
            return
        try:
            client.welcome(self.config.queue.default_timeout)
        except OSError:  # he came and went
            client.close()
            return
        self.clients.add(client)
        self._tokens[client.token] = client
        self.watch(client.link.fileno(), lambda: self._client_link(client))

    def _client_link(self, client: Client) -> None:
        """All that a client's link has now."""
        try:
            while not client.is_gone:
                said = client.link.receive()
                match said:
                    case None:
                        self._client_gone(client)
                    case {"arena": arena}, descriptor if descriptor >= 0:
                        client.lend(arena, descriptor)
                    case {"drop": int(arena)}, -1:
                        self._drop(client, arena)
                    case (_, descriptor):
                        if descriptor >= 0:
                            os.close(descriptor)
                        raise BadMessage("a message that no client sends")
        except BlockingIOError:
            return
        except (BadMessage, OSError, TypeError) as error:
            log.warning("client %d (uid %d) is cut off: %s", client.pid, client.uid, error)
            self._client_gone(client)

    def _drop(self, client: Client, arena: int) -> None:
        """The arena is not used any more; workers unmap it."""
        lent = client.arenas.pop(arena, None)
        if lent is not None:
            os.close(lent[0])
            for seat in self.fleet.seats:
                worker = seat.worker
                if worker is not None and arena in worker.arenas:
                    worker.arenas.discard(arena)
                    self._tell(worker, {"drop": arena})

    def _client_gone(self, client: Client) -> None:
        """Its queued jobs end. What runs is dropped when it is done; only then its memory is unmapped."""
        if client.is_gone:
            return
        self.forget(client.link.fileno())
        self.clients.discard(client)
        del self._tokens[client.token]
        for route in client.routes:
            self._channel_gone(route)
        client.routes.clear()
        self.scheduler.account_ends(client.account)
        for arena in [*client.arenas]:
            self._drop(client, arena)
        client.close()

    def _channel_gone(self, route: bytes) -> None:
        self._peers.pop(route, None)
        self._outbox.pop(route, None)
        self._unread.pop(route, None)
        self.questions.forget(route)

    def _client_says(self, client: Client, route: bytes, body: Body, now: float) -> None:
        if body.kind == CANCEL:
            self.scheduler.cancel(client.account, route, body.job)
        elif body.kind == Kind.ASK:
            self.questions.ask(client, route, body, now)
        elif body.kind == Kind.CLOSE:
            self.scheduler.channel_ends(client.account, route)
            client.routes.discard(route)
            self._channel_gone(route)
        else:
            raise BadMessage(f"a body of kind {body.kind}")

    def _job(self, client: Client, route: bytes, body: Body, now: float) -> None:
        try:
            call = client.account.calls.get(body.spec) or self._resolve(client, body.spec)
            if body.flags & SHARED:
                part = PART.unpack_from(body.whole, len(body.whole) - 40)
                if part[0] not in client.arenas:
                    self._client_link(client)  # it was lent before the job was sent, on another socket
                    if client.is_gone:
                        return
                length = part[1 + 1]
                if why := client.check_part(part):
                    raise Refused("InvalidInput", why)
            else:
                length = body.ends - body.begins
            if length != call.data_bytes and (call.data_bytes >= 0 or length < ~call.data_bytes):
                raise Refused("InvalidInput", f"{length} bytes do not fit the tensors that its spec describes")
            self.scheduler.submit(
                Job(
                    client.account,
                    route,
                    body.job,
                    call,
                    body.whole,
                    len(body.whole),
                    now,
                    now + body.seconds,
                    body.priority,
                    body.attempts,
                    body.flags & RESENT != 0,
                )
            )
        except Refused as refused:
            self._outbox[route].append(failure(body.job, refused.error, refused.text))

    def _resolve(self, client: Client, spec: bytes) -> Call:
        """Of the first job with this spec. Of strings, `data_bytes` is ~n: n bytes at least. Raises `Refused`."""
        try:
            job = parse_job(spec)
        except BadMessage as error:
            raise Refused("InvalidInput", str(error)) from None
        facts = self.fleet.models.get(job.model)
        if facts is not None and (why := self.questions.why_unserved(job.model)):
            raise Refused("ModelFailed", why)
        rows = {tensor.shape[0] if tensor.shape else 0 for tensor in job.tensors}
        key = (job.signature, job.outputs, tuple((each.name, each.dtype, each.shape[1:]) for each in job.tensors))
        length = fixed_bytes(job.tensors)
        if any(tensor.dtype == "string" for tensor in job.tensors):
            length = ~length
        is_joined = False
        if facts is not None and job.signature is not None:
            with suppress(LookupError):  # nothing is known yet, or its lane refuses it
                signature = facts.signatures[signature_name(job.signature, facts.signatures)]
                is_joined = Signature.from_record(signature).is_joined(job.outputs)
        call = self.scheduler.call(job.model, key, rows.pop() if len(rows) == 1 else 0, is_joined, length)
        client.account.keep(spec, call)
        return call

    def _fail(self, job: Job, error: str, text: str, is_running: bool) -> None:
        client = self._peers.get(job.channel)
        if not isinstance(client, Client):
            return
        memory = -1
        if error == "Quarantined" and job.body[1] & SHARED:
            lent = client.arenas.get(PART.unpack_from(job.body, len(job.body) - PART.size)[0])
            if lent is None:  # its channel is closed, and nobody waits for the job
                return
            memory = os.dup(lent[0])
        if error == "Quarantined":
            self._quarantine.keep(job.channel, job.body, memory, text)
        else:
            self._outbox[job.channel].append(failure(job.number, error, text, RUNNING if is_running else 0))

    def _kept(self) -> None:
        """The inputs of quarantined jobs are on the disk: now their clients may use the memory again."""
        os.eventfd_read(self._quarantine.bell)
        while self._quarantine.finished:
            route, body = self._quarantine.finished.popleft()
            if route in self._peers:
                self._outbox[route].append(body)

    def _release(self, job: Job) -> None:
        if job.channel in self._peers:
            self._outbox[job.channel].append(HEAD.pack(Kind.RELEASED, 0, 0, 0, 0, 0, job.number, 0.0, 0.0))

    def tell(self, route: bytes, body: bytes) -> None:
        """To be sent at the end of this turn."""
        self._outbox[route].append(body)

    # --- sending ------------------------------------------------------------------------------------------------

    def _send(self, now: float) -> None:
        outbox, self._outbox = self._outbox, defaultdict(list)
        for route, answers in outbox.items():
            if route in self._unread:
                self._unread[route].add(answers)
            elif send(self._router, route, answers) is False:
                self._unread[route] = Outbox(now)
                self._unread[route].add(answers)

    def _retry(self, now: float) -> None:
        """A ROUTER does not tell when a peer reads again."""
        for route, unread in [*self._unread.items()]:
            while unread.waiting and send(self._router, route, unread.waiting[0]) is not False:
                unread.nbytes -= sum(map(len, unread.waiting.popleft()))
                unread.since = now
            if not unread.waiting:
                del self._unread[route]
            elif unread.is_past_bounds(now):
                self._cut_off(route, BadMessage(f"it does not read: {unread.nbytes} bytes of answers wait"), now)

    # --- workers ------------------------------------------------------------------------------------------------

    def _run(self, batch: Batch, now: float) -> None:
        worker = self.fleet.by_core[batch.worker]
        frames = [BATCH.pack(RUN, 0, len(batch.jobs), batch.number)]
        for job in batch.jobs:
            body = job.body
            if body[1] & SHARED:
                self._lend(worker, job)
            frames.append(body)
        if not send(self._router, batch.lane, frames):
            self.fleet.kill(worker, "a lane takes no batch", now)

    def _lend(self, worker: Worker, job: Job) -> None:
        """A worker gets an arena's descriptor before the first batch that names it."""
        arena = PART.unpack_from(job.body, len(job.body) - 40)[0]
        if arena in worker.arenas:
            return
        client = self._peers.get(job.channel)
        if isinstance(client, Client) and arena in client.arenas:
            worker.arenas.add(arena)
            descriptor, size = client.arenas[arena]
            self._tell(worker, {"arena": arena, "bytes": size}, descriptor)

    def _tell(self, worker: Worker, message: dict[str, object], descriptor: int = -1) -> None:
        """The worker reads its link all the time, so one that is full belongs to a worker that hangs."""
        try:
            worker.process.link.send(message, descriptor)
        except OSError as error:
            if not worker.link_ended:
                self.fleet.kill(worker, f"its link takes no more: {error}", time.monotonic())

    def _worker_gone(self, worker: Worker) -> None:
        for route in worker.routes:
            self._peers.pop(route, None)

    def _batch_done(self, worker: Worker, route: bytes, frame: bytes, now: float) -> None:
        kind, flags, _, number = BATCH.unpack_from(frame)
        if kind != DONE or worker.core is None:
            raise BadMessage(f"a lane says {kind}")
        answers = [*bodies(frame, BATCH.size)]
        outcomes: list[str | None] = []
        for body in answers:
            if body.kind == ANSWER:
                outcomes.append(None)
            elif body.kind == Kind.FAILURE:
                outcomes.append(failure_of(frame[body.begins : body.ends])[0])
            else:
                raise BadMessage(f"an answer of kind {body.kind}")
        batch = worker.core.running.get(number)
        if batch is not None and [job.number for job in batch.jobs] != [body.job for body in answers]:
            raise BadMessage("answers to other jobs than it was given")
        ended = self.scheduler.batch_done(worker.core, route, number, flags & JOINED != 0, outcomes, now)
        for job, body in zip(ended, answers, strict=True):
            if job is not None:
                worker.seat.jobs += 1
                if job.channel in self._peers:
                    self._outbox[job.channel].append(body.whole)

    # --- the end ------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Running jobs end, those that wait are handed back; then the workers are told to end."""
        if not self.is_stopping:
            log.info("stopping: running jobs have %g s", self.config.pool.drain_timeout)
            self.is_stopping = True
            self._stop_by = time.monotonic() + self.config.pool.drain_timeout
            self.scheduler.stop_taking()

    def _drain(self, now: float) -> None:
        if (self.scheduler.jobs == 0 or now >= self._stop_by) and self._stop_by != math.inf:
            self._stop_by = math.inf
            self.fleet.stop(now)

    def close(self) -> None:
        """REQUIRES that the workers have ended, or that the pool must end at once: then they are killed."""
        self.fleet.kill_all()
        if self._outbox:
            self._send(time.monotonic())
        self._quarantine.close()
        for client in [*self.clients]:
            self._client_gone(client)
        self._entrance.close()
        self._router.close(linger=500)
        self._context.term()

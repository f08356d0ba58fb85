"""The loop: sockets, links, exits and timers come in; the scheduler decides; batches and answers go out."""

import logging
import math
import os
import resource
import socket
import struct
import time
from contextlib import suppress
from pathlib import Path
from selectors import EVENT_READ, EpollSelector
from typing import Any

import zmq
from zmq.backend import zmq_poll

from pool.config.sections import Door as DoorSettings
from pool.core.dispatcher import Policy
from pool.core.jobs import Batch, Call, Job
from pool.core.scheduler import Lie, Refused, Scheduler
from pool.devices.monitor import Monitor
from pool.log import Log
from pool.plan.footprints import NAME, Footprints
from pool.plan.rollout import Phase
from pool.plan.wanted import Plan, models_of
from pool.serve.changes import Changes, Disk
from pool.serve.door import Door
from pool.serve.fleet import Fleet
from pool.serve.quarantine import keep
from pool.serve.questions import Questions
from pool.serve.sockets import POLLIN, Answers, Client, Outbox, entrance, read, router, send
from pool.serve.worker import Worker
from pool.systemd import Notifier
from pool.wire import RELEASE, WIRE
from pool.wire.bodies import (
    BATCH,
    HEAD,
    JOINED,
    LETTER_BYTES,
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
    plain,
)
from pool.wire.link import MOST_AT_ONCE, close_aside, credentials
from pool.wire.signatures import Signature, signature_name
from pool.wire.specs import BadMessage, common_rows, fixed_bytes, parse_job

JOB, ANSWER, CANCEL, DONE, RUN = int(Kind.JOB), int(Kind.ANSWER), int(Kind.CANCEL), int(Kind.DONE), int(Kind.RUN)
RETRY_S = 0.02
MOST_CLIENTS, MOST_CHANNELS = 1000, 128  # channels of a client
MOST_UNREAD_BYTES, MOST_UNREAD_S = 64 << 20, 30.0
RESERVE = 2048  # descriptors that nobody gets but libzmq, which ends the process where it finds none

log = logging.getLogger("pool.serve")


class Service:
    """REQUIRES the lock of the endpoint, and the main thread: workers end with the thread that started them."""

    def __init__(self, plan: Plan, source: Path | None, path: Path, state: Path, kept: Log, monitor: Monitor) -> None:
        """`source`: of the configuration; None: there is no file."""
        self.endpoint = f"ipc://{path}"
        self.is_stopping = False
        self.sources = EpollSelector()  # what is read seldom, each with what is called then
        self._notifier, self.monitor = Notifier(os.environ, os.getpid()), monitor
        self._most = resource.getrlimit(resource.RLIMIT_NOFILE)[0] - RESERVE
        """The first number of a descriptor that no peer gets: the kernel gives out the smallest that is free."""
        self._state = ""
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router, self._monitor = router(self._context, self.endpoint)
        self._entrance = entrance(path.with_name(f"{path.name}.link"))
        self._clients: set[Client] = set()
        self._outbox = Answers(list)  # sent once a turn
        self._unread: dict[bytes, Outbox] = {}  # of channels that take no more now
        self.scheduler = Scheduler(Policy(), self._fail, self._release)  # the fleet gives it the configured one
        self.fleet = Fleet(plan, monitor, self.scheduler, self.endpoint, state, self.sources)
        self._peers: dict[bytes, Client | Worker] = self.fleet.peers
        self.door = Door(self.endpoint, self.sources)
        disk = Disk()
        self.changes = Changes(self.fleet, source, disk, Footprints(state / NAME))
        self._questions = Questions(self.fleet, self.changes, self.door, kept, self.stop, self._outbox)
        self._quarantine = state / "quarantine"
        self.sources.register(disk.reader, EVENT_READ, disk.hear)
        self.sources.register(self._entrance, EVENT_READ, self._client_comes)
        self.sources.register(int(self._monitor.getsockopt(zmq.FD)), EVENT_READ, self._connections_come)
        self._connections_come()  # a socket's FD tells of messages only to who has looked in vain before

    def run(self) -> None:
        """Until the pool has stopped. Raises what `pool.core` raises: then the pool must end."""
        scheduler, fleet, rare = self.scheduler, self.fleet, self.sources
        sources: list[Any] = [(self._router, POLLIN), (rare.fileno(), POLLIN)]
        now = time.monotonic()
        while not (self.is_stopping and fleet.is_over):
            looks = (fleet.next_look, self.changes.due, self.door.due, self._notifier.next_alive)
            due = min(scheduler.next_timer(), *looks)
            if self._unread:
                due = min(due, now + RETRY_S)
            wait_s = 0.0 if fleet.has_news else due - time.monotonic()
            ready = zmq_poll(sources, math.ceil(wait_s * 1000) if wait_s > 0 else 0)
            now = time.monotonic()
            for source, _ in ready:
                if source is self._router:
                    self._hear(now)
                else:
                    for key, _ in rare.select(0):
                        if rare.get_map().get(key.fd) is key:  # else one before it has ended it
                            key.data()
            if now >= due or len(ready) > 1 or not ready:
                now = time.monotonic()
                self._timers(now)
            if fleet.has_news:
                self._news(now)
            for batch in scheduler.dispatch(now):
                self._run(batch, now)
            if self._outbox:
                self._send(now)

    def _timers(self, now: float) -> None:
        self.scheduler.expire(now)
        for batch in self.scheduler.hung(now):
            why = f"it hangs: a batch of {batch.model.name!r} has run for {now - batch.began:.0f} s"
            self.fleet.kill(self.fleet.peers[batch.lane], why, now, is_hung=True)
        if now >= self.fleet.next_look:
            self.fleet.look(now)
        if now >= self.changes.due:
            self.fleet.has_news = True
        if now >= self.door.due:
            self.door.look(now)
            self.fleet.has_news = True  # it may have ended, for which a stop waits
        if self._questions.count(now):
            self.monitor.read(now)
            self.changes.watch(now)
            self._questions.ask_again(now)
        self._retry(now)
        self._notifier.alive(now)

    def _news(self, now: float) -> None:
        """A slot has come up or gone, or it is time for a change, or the pool stops: whoever waits hears of it."""
        fleet = self.fleet
        fleet.has_news = False
        if not self.is_stopping:
            self.changes.act(now)
        self.door.want(DoorSettings() if self.is_stopping else fleet.config.door, now)
        # At a stop the door ends first, with the requests that it has. Then jobs that wait are handed back, and each
        # slot drains.
        if self.is_stopping and self.door.pid is None and self.scheduler.is_taking:
            log.info("stopping: running jobs have %g s", fleet.config.pool.drain_timeout)
            self.scheduler.stop_taking()
            for seat in fleet.seats:
                if seat.phase is not Phase.LEAVING:
                    fleet.retire(seat, now)
        for name in fleet.models:
            if why := fleet.why_unserved(name):
                self.scheduler.give_up(name, why)
        for client in self._clients:
            client.account.forget_models()  # what is known of them, their end too, counts from the next job on
        self._questions.ask_again(now)
        if (state := fleet.state) == self._state:
            return
        ready, self._state = {seat.number for seat in fleet.seats if seat.phase is Phase.SERVING}, state
        line = f"{len(ready)} of {len(fleet.plan.slots)} slots at {self.endpoint}"
        if state == "DRAINING":
            self._notifier.tell("stopping", "STOPPING=1")
        elif state != "STARTING":
            log.info("ready: %s%s", line, ", degraded" if state == "DEGRADED" else "")
            self._notifier.tell(line, "READY=1")

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
                        if body.ends > LETTER_BYTES and body.whole is not frame:  # one message could stall the loop
                            raise BadMessage("several bodies in a message that is longer than a letter")
                        if body.kind == JOB:
                            self._job(peer, route, body, now)
                        else:
                            self._client_says(peer, route, body, body.whole is frame, now)
                else:
                    self._batch_done(peer, route, frame, now)
            except (BadMessage, Lie, ValueError, struct.error) as error:
                self._cut_off(self._peers.get(route), error, now)

    def _cut_off(self, peer: Client | Worker | None, error: Exception, now: float) -> None:
        """A peer that says what no correct peer says loses its link, and a worker its life."""
        if isinstance(peer, Client):
            log.warning("client %d (uid %d) is cut off: %s", peer.pid, peer.uid, error)
            self._client_gone(peer)
        elif peer is not None:
            self.fleet.kill(peer, f"it said what no worker says: {error}", now)

    def _join(self, route: bytes, frame: bytes | None) -> None:
        """The only message that an unknown route may send. Whoever sends another one hears that it is gone."""
        if frame is not None and len(frame) == HEAD.size + TOKEN_BYTES and frame[0] == Kind.JOIN:
            peer = self._peers.get(frame[HEAD.size :])
            if peer is not None and (isinstance(peer, Worker) or len(peer.routes) < MOST_CHANNELS):
                self._peers[route] = peer
                peer.routes.add(route)  # it is forgotten with the peer, whatever comes of it
                if isinstance(peer, Worker):
                    self.fleet.lane_comes(peer, route)
                return
        send(self._router, route, [plain(Kind.GONE)])

    def _client_comes(self) -> None:
        with suppress(OSError):  # it has gone already, which its link says next if it has one
            connection, _ = self._entrance.accept()
            if len(self._clients) >= MOST_CLIENTS or connection.fileno() >= self._most:
                close_aside(connection.detach())
                return
            connection.setblocking(False)
            client = Client(connection)
            self._clients.add(client)
            self._peers[client.token] = client
            self.sources.register(connection, EVENT_READ, lambda: self._client_link(client))
            about = {"wire": WIRE, "release": RELEASE, "pid": os.getpid(), "token": client.token}
            client.link.send(about | {"timeout_s": self.fleet.config.queue.default_timeout})

    def _connections_come(self) -> None:
        """libzmq has taken connections. A process needs a link to have one, and gets none of the last descriptors."""
        ours = {os.getpid(), *(seat.worker.pid for seat in self.fleet.seats if seat.worker is not None)}
        clients = {client.pid for client in self._clients}
        while self._monitor.poll(0):  # libzmq takes none while 1,001 of them are unread
            _, descriptor = struct.unpack("=hi", self._monitor.recv_multipart()[0])
            # It may be closed by now, and its number another's: who that is decides.
            with suppress(OSError), socket.fromfd(descriptor, socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                pid, _, _ = credentials(connection)
                if pid not in ours and (pid not in clients or descriptor >= self._most):
                    connection.shutdown(socket.SHUT_RDWR)

    def _client_link(self, client: Client) -> None:
        """All that a client's link has now."""
        descriptor, count = -1, 0
        try:
            while (said := client.link.receive()) is not None:
                message, descriptor = said
                count += 1
                if count > MOST_AT_ONCE:
                    raise BadMessage("messages without end")
                match message:
                    case {"arena": int(arena)} if 0 <= descriptor < self._most:
                        client.lend(arena, descriptor)
                    case {"drop": int(arena)} if descriptor < 0:
                        self._drop(client, arena)
                    case _:
                        raise BadMessage("a message that no client sends")
                descriptor = -1  # it is an arena's now
            self._client_gone(client)
        except BlockingIOError:
            return
        except BadMessage as error:
            if descriptor >= 0:
                close_aside(descriptor)
            self._cut_off(client, error, time.monotonic())

    def _drop(self, client: Client, arena: int) -> None:
        """The arena is not used any more; workers unmap it."""
        lent = client.arenas.pop(arena, None)
        if lent is not None:
            os.close(lent[0])
            for seat in self.fleet.seats:
                worker = seat.worker
                if worker is not None and arena in worker.arenas:
                    worker.arenas.discard(arena)
                    self.fleet.tell(worker, {"drop": arena})

    def _client_gone(self, client: Client) -> None:
        """Its queued jobs end. What runs is dropped when it is done; only then its memory is unmapped."""
        if client not in self._clients:
            return
        self.sources.unregister(client.link.socket)
        self._clients.discard(client)
        for route in (client.token, *client.routes):
            self._channel_gone(client, route)
        for arena in [*client.arenas]:
            self._drop(client, arena)
        close_aside(client.link.socket.detach())

    def _channel_gone(self, client: Client, route: bytes) -> None:
        self.scheduler.channel_ends(client.account, route)
        self._peers.pop(route, None)
        self._outbox.pop(route, None)
        self._unread.pop(route, None)

    def _client_says(self, client: Client, route: bytes, body: Body, is_alone: bool, now: float) -> None:
        if body.kind == CANCEL:
            self.scheduler.cancel(client.account, route, body.job)
        elif body.kind == Kind.ASK and is_alone:
            self._questions.ask(client, route, body, now)
        elif body.kind == Kind.CLOSE and is_alone:  # nothing may come after it
            client.routes.discard(route)
            self._channel_gone(client, route)
        else:
            raise BadMessage(f"a body of kind {body.kind}")

    def _job(self, client: Client, route: bytes, body: Body, now: float) -> None:
        account = client.account
        try:
            call = account.calls.get(body.spec) or self._resolve(client, body.spec)
            if body.flags & SHARED:
                part = PART.unpack_from(body.whole, len(body.whole) - 40)
                if part[0] not in client.arenas:
                    self._client_link(client)  # it was lent before the job was sent, on another socket
                    if client not in self._clients:
                        raise BadMessage("jobs after the end of their link")
                _, _, length, _, _ = part
                if why := client.check_part(part):
                    raise Refused("InvalidInput", why)
            else:
                length = body.ends - body.begins
            if length != call.data_bytes and (call.data_bytes >= 0 or length < ~call.data_bytes):
                raise Refused("InvalidInput", f"{length} bytes do not fit the tensors that its spec describes")
            whole, until, resent = body.whole, now + body.seconds, body.flags & RESENT != 0
            self.scheduler.submit(
                Job(account, route, body.job, call, whole, len(whole), now, until, body.priority, body.attempts, resent)
            )
        except Refused as refused:
            self._outbox[route].append(failure(body.job, refused.error, refused.text))

    def _resolve(self, client: Client, spec: bytes) -> Call:
        """Of the first job with this spec. Of strings, `data_bytes` is ~n: n bytes at least. Raises `Refused`."""
        try:
            job = parse_job(spec)
        except BadMessage as error:
            raise Refused("InvalidInput", str(error)) from None
        model = self.fleet.served_as(job.model)
        if why := self.fleet.why_unserved(model):
            raise Refused("ModelFailed", why)
        rows = common_rows([tensor.shape for tensor in job.tensors])
        key = (job.signature, job.outputs, tuple((each.name, each.dtype, each.shape[1:]) for each in job.tensors))
        length = fixed_bytes(job.tensors)
        if any(tensor.dtype == "string" for tensor in job.tensors):
            length = ~length
        is_joined = False
        if job.signature is not None:
            with suppress(LookupError):  # nothing is known yet, or its lane refuses it
                known = self.fleet.models[model]["signatures"]
                signature = Signature.from_record(known[signature_name(job.signature, known)])
                is_joined = signature.is_joined([tensor.name for tensor in job.tensors], job.outputs)
        if job.slot >= 0 and model not in models_of(self.fleet.plan.slots.get(job.slot)):
            raise Refused("InvalidInput", f"slot {job.slot} is none of {model}'s, which `pool status` shows")
        call = self.scheduler.call(model, key, rows, is_joined, length, job.slot)
        client.account.keep(spec, call)
        return call

    def _fail(self, job: Job, error: str, text: str, is_running: bool) -> None:
        client = self._peers.get(job.channel)
        if not isinstance(client, Client):
            return
        if error == "Quarantined":
            text = keep(self._quarantine, job, client.arenas, text)
        self._outbox[job.channel].append(failure(job.number, error, text, RUNNING if is_running else 0))

    def _release(self, job: Job) -> None:
        if job.channel in self._peers:
            self._outbox[job.channel].append(plain(Kind.RELEASED, job.number))

    def _send(self, now: float) -> None:
        for route, answers in self._outbox.items():
            unread = self._unread.get(route) if self._unread else None
            if unread is None and send(self._router, route, answers) is False:
                unread = self._unread[route] = Outbox(now)
            if unread is not None:
                unread.waiting.append(answers)
                unread.nbytes += sum(map(len, answers))
        self._outbox.clear()

    def _retry(self, now: float) -> None:
        """A ROUTER does not tell when a peer reads again."""
        for route, unread in [*self._unread.items()]:
            if route not in self._unread:  # its client was cut off for another channel
                continue
            while unread.waiting and send(self._router, route, unread.waiting[0]) is not False:
                unread.nbytes -= sum(map(len, unread.waiting.popleft()))
                unread.since = now
            if not unread.waiting:
                del self._unread[route]
                continue
            client = self._peers[route]
            held = sum([self._unread[each].nbytes for each in client.routes & self._unread.keys()])
            if held > MOST_UNREAD_BYTES or now - unread.since > MOST_UNREAD_S:
                self._cut_off(client, BadMessage(f"it does not read: {held} bytes of answers wait"), now)

    def _run(self, batch: Batch, now: float) -> None:
        worker: Worker = self.fleet.peers[batch.lane]
        frames = [BATCH.pack(RUN, 0, batch.worker.numbers[batch.model], len(batch.jobs), batch.number)]
        for job in batch.jobs:
            body = job.body
            if body[1] & SHARED and not self._lend(worker, job):  # without the region, which a lane would wait for
                body = body[:1] + bytes([body[1] & ~SHARED]) + body[2:8] + bytes(4) + body[12 : -PART.size]
            frames.append(body)
        if not send(self._router, batch.lane, frames):
            self.fleet.kill(worker, "a lane takes no batch", now)

    def _lend(self, worker: Worker, job: Job) -> bool:
        """A worker gets an arena's descriptor before the first batch that names it. False: it was dropped."""
        arena, client = PART.unpack_from(job.body, len(job.body) - 40)[0], self._peers.get(job.channel)
        if arena not in worker.arenas and isinstance(client, Client) and arena in client.arenas:
            worker.arenas.add(arena)
            self.fleet.tell(worker, {"arena": arena}, client.arenas[arena][0])
        return arena in worker.arenas

    def _batch_done(self, worker: Worker, route: bytes, frame: bytes, now: float) -> None:
        kind, flags, _, _, number = BATCH.unpack_from(frame)
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

    def stop(self) -> None:
        self.is_stopping = self.fleet.has_news = True

    def close(self) -> None:
        """REQUIRES that the workers have ended, or that the pool must end at once: then they are killed."""
        self.fleet.kill_all()
        self.door.close()
        self.monitor.close()
        self._send(time.monotonic())
        for client in [*self._clients]:
            self._client_gone(client)
        self._entrance.close()
        self._connections_come()  # libzmq waits for room to tell of more
        self._router.disable_monitor()
        self._context.destroy(linger=500)

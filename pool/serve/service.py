"""The loop: sockets, links and deaths come in; the scheduler decides; batches and answers go out.

clients ── jobs ──────► submit ─────┐                 ┌─ batches ─► workers
workers ── answers ───► batch_done ─┼──► dispatch ────┤
links, deadlines ───────────────────┘                 └─ answers ─► clients
"""

import contextlib
import math
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import zmq

from pool.core.jobs import Batch, Call, Job, Line, Slot
from pool.core.scheduler import Scheduler
from pool.serve.peers import Client, Worker
from pool.serve.sockets import read, router, send
from pool.wire import link, tensors
from pool.wire.messages import BATCH, HEAD, PART, RUNNING, SHARED, BadMessage, Body, Kind, bodies, failure

__all__ = ["Service"]

JOB, ANSWER = int(Kind.JOB), int(Kind.ANSWER)
LOOK_S = 1.0


class Service:
    def __init__(self, endpoint: str, models: dict[str, str], slots: int) -> None:
        self._models = models
        self._path = endpoint.removeprefix("ipc://")
        self._context: zmq.Context = zmq.Context()
        self._router = router(self._context, endpoint)
        self._entrance = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
        Path(f"{self._path}.link").unlink(missing_ok=True)
        self._entrance.bind(f"{self._path}.link")
        self._entrance.listen()
        self._scheduler = Scheduler([Slot(number, models) for number in range(slots)], self._fail, self._release)
        self._calls: dict[bytes, Call] = {}
        self._lines: dict[object, Line] = {}
        self._peers: dict[bytes, Client | Worker] = {}  # by route
        self._tokens: dict[bytes, Client | Worker] = {}
        self._outbox: defaultdict[bytes, list[bytes]] = defaultdict(list)  # sent once a turn
        self._sources: dict[int, Callable[[], None]] = {}
        self._rare = select.epoll()  # links
        self._poller = zmq.Poller()
        self._poller.register(self._router, zmq.POLLIN)
        self._poller.register(self._rare.fileno(), zmq.POLLIN)
        self._watch(self._entrance.fileno(), self._client_comes)
        for slot in self._scheduler.slots:
            self._start_worker(slot)

    def run(self) -> None:
        scheduler, poll = self._scheduler, self._poller.poll
        while True:
            wait_s = min(scheduler.next_deadline() - time.monotonic(), LOOK_S)
            ready = poll(max(0, math.ceil(wait_s * 1000)))
            now = time.monotonic()
            for source, _ in ready:
                if source is self._router:
                    self._hear(now)
                else:
                    for descriptor, _ in self._rare.poll(0):
                        self._sources[descriptor]()
            scheduler.expire(now)
            for _slot, batch in scheduler.dispatch(now):
                self._run(batch)
            if self._outbox:
                for route, answers in self._outbox.items():
                    send(self._router, route, answers)
                self._outbox.clear()

    def _hear(self, now: float) -> None:
        for route, frame, rest in read(self._router):
            peer = self._peers.get(route)
            try:
                if peer is None:
                    self._join(route, frame)
                elif peer.slot is None:
                    for each in (frame, *rest):
                        for body in bodies(each):
                            self._client_says(peer, route, body, now)
                else:
                    self._batch_done(peer, frame, rest, now)
            except BadMessage:
                pass  # counted and logged in the product

    def _join(self, route: bytes, frame: bytes) -> None:
        if len(frame) != HEAD.size + 16 or frame[0] != Kind.JOIN:
            return  # of a client that has gone, or a stranger
        peer = self._tokens.get(frame[HEAD.size :])
        if peer is not None:
            self._peers[route] = peer
            peer.routes.add(route)
            if peer.slot is not None:
                peer.slot.idle.append(route)

    def _watch(self, descriptor: int, call: Callable[[], None]) -> None:
        self._sources[descriptor] = call
        self._rare.register(descriptor, select.EPOLLIN)

    def _forget(self, descriptor: int) -> None:
        del self._sources[descriptor]
        self._rare.unregister(descriptor)

    # --- clients ------------------------------------------------------------------------------------------------

    def _client_comes(self) -> None:
        connection, _ = self._entrance.accept()
        client = Client(connection)
        self._tokens[client.token] = client
        link.send(connection, {"token": client.token})
        self._watch(connection.fileno(), lambda: self._client_speaks(client))

    def _client_speaks(self, client: Client) -> None:
        said = link.receive(client.link)
        if said is not None:
            arena = secrets.randbits(63)
            (client.arenas[arena],) = said[1]
            link.send(client.link, {"arena": arena})
            return
        self._forget(client.link.fileno())
        client.link.close()
        del self._tokens[client.token]
        for route in client.routes:
            del self._peers[route]
            for job in [job for job in self._scheduler.jobs.values() if job.client == route]:
                self._scheduler.cancel(route, job.number)
        for descriptor in client.arenas.values():
            os.close(descriptor)

    def _client_says(self, client: Client, route: bytes, body: Body, now: float) -> None:
        if body.kind == JOB:
            call = self._calls.get(body.spec) or self._resolve(body.spec)
            if body.flags & SHARED:
                arena, _, length, _, _ = PART.unpack_from(body.whole, len(body.whole) - PART.size)
                if arena not in client.arenas:
                    return self._refuse(route, body, "it names shared memory that was not lent")
            else:
                length = body.ends - body.begins
            if length != call.data_bytes:
                return self._refuse(route, body, f"it has {length} bytes for tensors of {call.data_bytes}")
            self._scheduler.submit(route, body.job, call, body.whole, body.seconds, now)
        elif body.kind == Kind.CANCEL:
            self._scheduler.cancel(route, body.job)

    def _refuse(self, route: bytes, body: Body, reason: str) -> None:
        self._outbox[route].append(failure(body.job, reason))

    def _resolve(self, spec: bytes) -> Call:
        """Of the first job with this spec; the product checks it against the model's signature."""
        described = tensors.tensors(spec)
        key = tuple((each.name, each.dtype, each.shape[1:]) for each in described)
        if key not in self._lines:
            self._lines[key] = Line(next(iter(self._models)), 64)
            self._scheduler.lines.append(self._lines[key])
        call = self._calls[spec] = Call(self._lines[key], described[0].shape[0], tensors.data_bytes(spec))
        return call

    def _fail(self, job: Job, reason: str, is_running: bool) -> None:
        self._outbox[job.client].append(failure(job.number, reason, RUNNING if is_running else 0))

    def _release(self, job: Job) -> None:
        self._outbox[job.client].append(HEAD.pack(Kind.RELEASED, 0, 0, 0, job.number, 0.0, 0.0))

    # --- workers ------------------------------------------------------------------------------------------------

    def _start_worker(self, slot: Slot) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "workers", str(theirs.fileno()), str(os.getpid())],
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
            pass_fds=[theirs.fileno()],
            process_group=0,
        )
        theirs.close()
        worker = Worker(ours, slot=slot, pid=process.pid)
        self._tokens[worker.token] = worker
        welcome = {"token": worker.token, "address": f"ipc://{self._path}", "models": self._models, "lanes": 2}
        with contextlib.suppress(OSError):
            link.send(ours, welcome)
        self._watch(ours.fileno(), lambda: self._worker_gone(worker, process))

    def _worker_gone(self, worker: Worker, process: "subprocess.Popen[bytes]") -> None:
        if link.receive(worker.link) is not None:
            return
        self._forget(worker.link.fileno())
        worker.link.close()
        status = process.wait()  # a link ends at exit; the product waits for it in the loop
        del self._tokens[worker.token]
        for route in worker.routes:
            del self._peers[route]
        slot = worker.slot
        self._scheduler.worker_died(slot, signal.Signals(-status).name if status < 0 else f"exit status {status}")
        self._start_worker(slot)

    def _run(self, batch: Batch) -> None:
        worker = self._peers[batch.lane]
        for job in batch.jobs:
            if job.body[1] & SHARED:
                self._lend(worker, job)
        head = BATCH.pack(Kind.RUN, len(batch.jobs), batch.number)
        send(self._router, batch.lane, [head, *[job.body for job in batch.jobs]])

    def _batch_done(self, worker: Worker, frame: bytes, rest: list[bytes], now: float) -> None:
        _, _, number = BATCH.unpack_from(frame)
        answers = [*bodies(frame, BATCH.size), *(body for each in rest for body in bodies(each))]
        ended = self._scheduler.batch_done(worker.slot, number, [body.kind == ANSWER for body in answers], now)
        for job, answer in zip(ended, answers, strict=True):
            if job is not None:
                self._outbox[job.client].append(answer.whole)

    def _lend(self, worker: Worker, job: Job) -> None:
        """A worker gets an arena's descriptor before the first batch that names it."""
        arena = PART.unpack_from(job.body, len(job.body) - PART.size)[0]
        if arena not in worker.arenas:
            worker.arenas.add(arena)
            link.send(worker.link, {"arena": arena}, (self._peers[job.client].arenas[arena],))

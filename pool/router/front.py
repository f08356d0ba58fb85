"""The clients' side: one ROUTER an endpoint.

Nothing that a client sends can raise, block or be taken for another client's: a frame that is not understood is
answered with REFUSAL and counted. Routing ids are the router's own; a client is named by (socket, routing id).
"""

import logging
import os
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgpack
import zmq

from pool.core.actions import AnswerJob
from pool.core.events import ClientGone, Event, JobArrived, JobCancelled, Succeeded
from pool.router.refusals import count
from pool.wire import messages as wire
from pool.wire.frames import BadFrame, Envelope, decode, encode

__all__ = ["Front", "Question"]

log = logging.getLogger("pool.front")

Payload = Sequence["bytes | zmq.Frame"]

RECEIVE_BURST = 64  # messages taken from one socket before the others get their turn
CLIENT_HEADER_BYTES = 64 << 10  # a model's name and a few numbers
HIGH_WATER_MARK = 1000  # messages; what does not fit waits in an outbox here, where it is counted
RETRY_S = 0.01  # a full pipe is tried again after this
SILENCE_S = 30.0  # a client with jobs here pings every second or so; after this it is gone


@dataclass(frozen=True, slots=True)
class Question:
    """An ASK; answered with `Front.reply`."""

    client: bytes
    request: int
    what: str
    local: bool


class Front:
    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        opened: wire.Opened,
        instance: bytes,
        most_replies: int,
    ) -> None:
        """`most_replies`: how many answers may wait for a slow reader before it counts as gone."""
        self.refused: Counter[str] = Counter()
        self._context = context
        self._instance = instance
        self._opened = opened
        self._most_replies = most_replies
        self._sockets: list[zmq.Socket[bytes]] = []
        self._local: list[bool] = []
        self._heard: dict[bytes, float] = {}
        self._outbox: dict[bytes, deque[Payload]] = {}
        self._gone: set[bytes] = set()

    def bind_local(self, path: Path) -> None:
        """Opens the Unix socket, for this user alone. The caller holds the lock, so a file there is stale."""
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._bind(f"ipc://{path}", local=True)
        finally:
            os.umask(before)

    def bind_remote(self, endpoint: str) -> None:
        """Opens a TCP endpoint; what comes from there may submit and ask, not stop the pool."""
        self._bind(endpoint, local=False)
        bound = self._sockets[-1].getsockopt_string(zmq.LAST_ENDPOINT)  # the port, where it was left open
        log.info("listening at %s too, for whoever can reach it", bound)

    def _bind(self, endpoint: str, local: bool) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.router_mandatory = True
        socket.linger = 1000
        socket.sndhwm = socket.rcvhwm = HIGH_WATER_MARK
        socket.maxmsgsize = self._opened.credit_bytes + (1 << 20)
        if not local:
            socket.heartbeat_ivl, socket.heartbeat_timeout = 5_000, 15_000
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            socket.close()
            raise OSError(f"cannot listen at {endpoint}: {error.strerror}") from None
        self._sockets.append(socket)
        self._local.append(local)

    @property
    def sockets(self) -> Sequence["zmq.Socket[bytes]"]:
        return self._sockets

    def close(self) -> None:
        """Hands what is queued to the kernel for at most a second."""
        for socket in self._sockets:
            socket.close()

    # --- in -----------------------------------------------------------------------------------------------------

    def receive(self, socket: "zmq.Socket[bytes]", now: float) -> Iterator[Event | Question]:
        """At most a burst of messages; there may be more."""
        index = self._sockets.index(socket)
        for _ in range(RECEIVE_BURST):
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            client = bytes((index,)) + frames[0].bytes
            heard = self._understand(client, frames[1:], now)
            if heard is not None:
                yield heard

    def _understand(self, client: bytes, frames: list[zmq.Frame], now: float) -> Event | Question | None:
        try:
            if len(frames) < 2:
                raise BadFrame(f"{len(frames)} frames")
            envelope = decode(frames[0].bytes, frames[1].buffer, frames[2:], CLIENT_HEADER_BYTES)
            event = self._event(client, envelope)
        except BadFrame as error:
            self._refuse(client, str(error))
            return None
        self._heard[client] = now
        return event

    def _event(self, client: bytes, envelope: Envelope[zmq.Frame]) -> Event | Question | None:
        if isinstance(envelope.message, wire.Open):
            self._send(client, encode(self._opened, self._instance))
            return None
        if envelope.instance != self._instance:
            raise BadFrame("this message is for another instance of the pool, which has ended")
        match envelope.message:
            case wire.Submit(job, model, timeout_s):
                if not envelope.payload:
                    raise BadFrame("SUBMIT without a call")
                size = sum(map(len, envelope.payload))
                return JobArrived(client, job, model, timeout_s, size, envelope.payload)
            case wire.Cancel(job):
                return JobCancelled(client, job)
            case wire.Ping():
                self._send(client, encode(wire.Pong(), self._instance))
            case wire.Ask(request, what):
                return Question(client, request, what, self._local[client[0]])
            case wire.Close():
                self._forget(client)
                return ClientGone(client)
            case other:
                raise BadFrame(f"{type(other).__name__} is not a client's message")
        return None

    def _refuse(self, client: bytes, text: str) -> None:
        if count(self.refused, text):
            log.warning("refused a message from a client: %s", text)
        self._send(client, encode(wire.Refusal(text), self._instance))

    # --- out ----------------------------------------------------------------------------------------------------

    def answer(self, action: AnswerJob) -> None:
        if isinstance(action.outcome, Succeeded):
            payload: Payload = action.outcome.payload  # type: ignore[assignment]  # as `Back` gave it to the core
            self._send(action.client, [*encode(wire.Result(action.job), self._instance), *payload])
        else:
            failure = wire.Failure(action.job, action.outcome.fault, action.outcome.text)
            self._send(action.client, encode(failure, self._instance))

    def reply(self, question: Question, value: object = None, error: str | None = None) -> None:
        frames = encode(wire.Answer(question.request, error), self._instance)
        self._send(question.client, [*frames, msgpack.packb(value)])

    def _send(self, client: bytes, frames: Payload) -> None:
        """Never blocks. What a slow reader's pipe does not take waits in its outbox, up to a bound."""
        waiting = self._outbox.get(client)
        if waiting is None:
            if self._try_send(client, frames):
                return
            waiting = self._outbox[client] = deque()
        waiting.append(frames)
        if len(waiting) > self._most_replies:
            log.warning("a client does not read its %d answers and is dropped", len(waiting))
            self._gone.add(client)

    def _try_send(self, client: bytes, frames: Payload) -> bool:
        try:
            self._sockets[client[0]].send_multipart([client[1:], *frames], zmq.NOBLOCK, copy=False)
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._gone.add(client)
        return True

    # --- time ---------------------------------------------------------------------------------------------------

    def next_deadline(self, now: float) -> float | None:
        """When `tend` is to be called at the latest."""
        if self._gone:
            return now
        if self._outbox:
            return now + RETRY_S
        return now + SILENCE_S if self._heard else None

    def tend(self, now: float) -> Iterator[Event]:
        """Tries the outboxes again and tells of clients that are gone."""
        for client, waiting in list(self._outbox.items()):
            while waiting and self._try_send(client, waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._outbox[client]
        self._gone.update(client for client, heard in self._heard.items() if now - heard > SILENCE_S)
        while self._gone:
            client = self._gone.pop()
            self._forget(client)
            yield ClientGone(client)

    def _forget(self, client: bytes) -> None:
        self._heard.pop(client, None)
        self._outbox.pop(client, None)

"""The clients' side: one ROUTER an endpoint.

Nothing that a client sends can raise, block or be taken for another client's: a frame that is not understood is
answered with REFUSAL and counted. Routing ids are the router's own; a client is named by (socket, routing id).
"""

import logging
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

import msgpack
import zmq

from pool.core.actions import AnswerJob, JobDone, MembersCancelled, PackDissolved
from pool.core.events import ClientGone, Event, JobArrived, JobCancelled
from pool.logs import about
from pool.router.answers import Answers
from pool.router.arenas import Arenas
from pool.router.debts import Debts
from pool.router.inbox import MOST_FRAMES, Inbox
from pool.router.intake import Intake
from pool.router.lender import Lender
from pool.router.outbox import RETRY_S, Outboxes
from pool.router.payload import Payload
from pool.router.presence import Presence
from pool.router.refusals import count
from pool.router.repeats import Repeats
from pool.router.rows import Inputs
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from pool.wire.frames import BadFrame, Envelope, decode, encode
from pool.wire.multipart import send_frames
from pool.wire.session_runs import LOCAL_ONLY

__all__ = ["Front", "Question"]

log = logging.getLogger("pool.front")

CLIENT_HEADER_BYTES = 64 << 10  # a few names and numbers
# Messages. What libzmq has read of a client waits in this process on nobody's books, and outlives its connection.
RECEIVE_HIGH_WATER_MARK = 64
# Small: what libzmq holds for a slow reader is counted in messages only, what waits in an outbox here in bytes too.
SEND_HIGH_WATER_MARK = 64
SILENCE_S = 30.0  # a client with jobs here pings every second or so; after this it is gone
FLUSH_S = 1.0  # how long `close` waits for those who read their last answers slowly …
STALL_S = 0.25  # … as long as somebody takes one now and then
LINGER_MS = 1000  # how long libzmq then takes to hand its own queues to the kernel


LastWord = wire.Farewell | wire.Refusal


@dataclass(frozen=True, slots=True)
class Question:
    """An ASK; answered with `Front.reply`."""

    client: bytes
    request: int
    what: str
    about: str
    local: bool


class Front:
    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        opened: wire.Opened,
        instance: bytes,
        most_replies: int,
        arenas: Arenas,
    ) -> None:
        """`most_replies`: how many answers may wait for a slow reader before it is dropped.

        The bytes that wait for all slow readers may be as many as one client's credit in `opened`.
        """
        self.refused: Counter[str] = Counter()
        self._context = context
        self._instance = instance
        self._opened = opened
        self._largest_credit = opened.credit_bytes  # the sockets take no larger message
        self._informed: set[bytes] | None = None  # of other terms than the first; None: there are none
        self._inboxes: list[Inbox] = []
        self._local: list[bool] = []
        self._intake = Intake(arenas)
        self._arenas = arenas
        self._lender: Lender | None = None
        self._repeats = Repeats()
        self._presence = Presence(SILENCE_S)
        self._debts = Debts()
        self._answers = Answers(
            lambda client, message, payload: self._send(client, [*encode(message, instance), *payload])
        )
        self._outboxes = Outboxes(most_replies, opened.credit_bytes)
        self._gone: dict[bytes, LastWord | None] = {}  # and what it is to be told, where it may still listen

    def adopt(self, opened: wire.Opened, most_replies: int) -> None:
        """Other terms. A client that is connected hears of them as an answer to its next message.

        A client's credit never becomes more than it was at first: the sockets that are bound would cut it off.
        """
        credit_bytes = min(opened.credit_bytes, self._largest_credit)
        opened = replace(opened, credit_bytes=credit_bytes)
        if opened != self._opened:
            self._opened, self._informed = opened, set()
        self._outboxes.adopt(most_replies, credit_bytes)

    def bind_local(self, path: Path) -> None:
        """Opens the Unix socket, for this user alone. The caller holds the lock, so a file there is stale."""
        path.unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            self._bind(f"ipc://{path}", local=True)
        finally:
            os.umask(before)

    def lend(self, path: Path) -> None:
        """Opens the socket on which local clients are lent memory. The caller holds the lock."""
        self._lender = Lender(path, self._arenas, self.refused)

    def bind_remote(self, endpoint: str) -> None:
        """Opens a TCP endpoint; what comes from there may submit and ask, not stop the pool."""
        self._bind(endpoint, local=False)
        bound = self.sockets[-1].getsockopt_string(zmq.LAST_ENDPOINT)  # the port, where it was left open
        log.info("listening at %s too, for whoever can reach it", bound, extra=about("listening", endpoint=bound))

    def _bind(self, endpoint: str, local: bool) -> None:
        socket = self._context.socket(zmq.ROUTER)
        socket.router_mandatory = True
        socket.linger = LINGER_MS
        socket.sndhwm, socket.rcvhwm = SEND_HIGH_WATER_MARK, RECEIVE_HIGH_WATER_MARK
        socket.maxmsgsize = self._opened.credit_bytes + (1 << 20)
        if not local:
            socket.heartbeat_ivl, socket.heartbeat_timeout = 5_000, 15_000
        try:
            socket.bind(endpoint)
        except zmq.ZMQError as error:
            socket.close()
            raise OSError(f"cannot listen at {endpoint}: {error.strerror}") from None
        self._inboxes.append(Inbox(socket))
        self._local.append(local)

    @property
    def unread_bytes(self) -> int:
        """Of answers that their clients have not read yet, beyond what the sockets hold."""
        return self._outboxes.size_bytes

    @property
    def sockets(self) -> Sequence["zmq.Socket[bytes]"]:
        return [inbox.socket for inbox in self._inboxes]

    def say_farewell(self, text: str) -> set[bytes]:
        """To all clients that were heard of lately; those are returned."""
        clients = self._presence.clients()
        for client in clients:
            self._send(client, encode(wire.Farewell(text, unread=True), self._instance))
        return set(clients)

    def close(self) -> None:
        """Hands what is queued to the kernel, within two seconds and only as long as somebody reads."""
        now = time.monotonic()
        ends, stalled = now + FLUSH_S, now + STALL_S
        while self._outboxes and now < min(ends, stalled):
            if self._outboxes.flush(self._try_send, now):
                stalled = now + STALL_S
            else:
                time.sleep(RETRY_S)
            now = time.monotonic()
        for client in self._outboxes.clients():
            self._outboxes.forget(client)
        for inbox in self._inboxes:
            inbox.socket.close()
        if self._lender is not None:
            self._lender.close()
        self._arenas.close()

    # --- in -----------------------------------------------------------------------------------------------------

    def fds(self) -> Sequence[int]:
        """Descriptors that are readable when a client wants memory, or has gone."""
        return [] if self._lender is None else [self._lender.fd]

    def on_readable(self) -> None:
        """`tend` tells of clients that have gone."""
        assert self._lender is not None
        for client in self._lender.turn():
            self._gone.setdefault(client, None)

    def receive(self, socket: "zmq.Socket[bytes]", now: float) -> Iterator[Event | Question]:
        """At most a turn's messages; there may be more."""
        index = self.sockets.index(socket)
        for route, frames in self._inboxes[index].turn():
            client = bytes((index,)) + route
            if frames is None:
                self._refuse(client, f"a message of more than {MOST_FRAMES} frames")
                continue
            heard = self._understand(client, frames, now)
            if heard is not None:
                yield heard

    def _understand(self, client: bytes, frames: list[zmq.Frame], now: float) -> Event | Question | None:
        try:
            if len(frames) < 2:
                raise BadFrame(f"{len(frames)} frames")
            envelope = decode(wire.CLIENT_MESSAGES, frames[0].bytes, frames[1].buffer, frames[2:], CLIENT_HEADER_BYTES)
            self._presence.heard(client, now)
            if self._informed is not None and client not in self._informed:
                self._inform(client, envelope)
            return self._event(client, envelope, now)
        except BadFrame as error:
            self._refuse(client, str(error))
            return None

    def _inform(self, client: bytes, envelope: Envelope[zmq.Frame]) -> None:
        """Of the present terms, if it has heard of former ones: whoever opens is told anyway, whoever closes goes."""
        assert self._informed is not None
        if isinstance(envelope.message, wire.Open):
            self._informed.add(client)
        elif envelope.instance == self._instance and not isinstance(envelope.message, wire.Close):
            self._informed.add(client)
            self._tell_terms(client)

    def _tell_terms(self, client: bytes) -> None:
        opened = self._opened
        if self._lender is not None and self._local[client[0]]:
            opened = replace(opened, ticket=self._lender.ticket(client))
        self._send(client, encode(opened, self._instance))

    def _event(self, client: bytes, envelope: Envelope[zmq.Frame], now: float) -> Event | Question | None:
        if isinstance(envelope.message, wire.Open):
            self._tell_terms(client)
            return None
        if envelope.instance != self._instance:
            raise BadFrame("this message is for another instance of the pool, which has ended")
        match envelope.message:
            case wire.Submit() as submit:
                return self._submitted(client, submit, envelope.payload, now)
            case wire.Cancel(job):
                self._debts.settle(client, job)
                return JobCancelled(client, job)
            case wire.Ping():
                self._send(client, encode(wire.Pong(), self._instance))
            case wire.Ask(request, what, about):
                return Question(client, request, what, about, self._local[client[0]])
            case wire.Close():
                self._forget(client)
                return ClientGone(client)
            case other:
                raise BadFrame(f"{type(other).__name__} is not a client's message")
        return None

    def quarantined(self, inputs: Inputs, now: float) -> None:
        """The same inputs are not run again for a while."""
        self._repeats.quarantined(inputs, now)

    def _submitted(
        self, client: bytes, submit: wire.Submit, payload: Sequence[zmq.Frame], now: float
    ) -> JobArrived | None:
        if self._debts.owes(client, submit.job):  # nothing of the first one is another's, or released
            text = f"job {submit.job} is already in the pool"
            self._send(client, encode(wire.Failure(submit.job, Fault.INVALID_INPUT, text, None), self._instance))
            return None
        if submit.signature in LOCAL_ONLY and not self._local[client[0]]:
            text = "over TCP a session cannot write: its graph may write files wherever it is told to"
            self._send(client, encode(wire.Failure(submit.job, Fault.INVALID_INPUT, text, None), self._instance))
            self._released(client, submit.job)
            return None
        try:
            arrived = self._intake.job(client, submit, payload, self._released)
        except BadFrame as error:
            text = f"the job cannot be read: {error}"
            if count(self.refused, text):
                log.warning("refused a job of a client: %s", text, extra=about("job_refused", reason=text))
            self._send(client, encode(wire.Failure(submit.job, Fault.INVALID_INPUT, text, None), self._instance))
            self._released(client, submit.job)
            return None
        inputs: Inputs = arrived.payload  # type: ignore[assignment]  # as `Intake` made it
        if (why := self._repeats.refusal(inputs, now)) is not None:
            count(self.refused, "a job with the inputs of a quarantined one")
            self._send(client, encode(wire.Failure(submit.job, Fault.QUARANTINED, why, None), self._instance))
            if inputs.tenancy is not None:
                inputs.tenancy.let_go()
            return None
        self._debts.add(client, submit.job, inputs.tenancy)
        return arrived

    def _refuse(self, client: bytes, text: str) -> None:
        if count(self.refused, text):
            log.warning("refused a message from a client: %s", text, extra=about("message_refused", reason=text))
        self._send(client, encode(wire.Refusal(text), self._instance))

    # --- out ----------------------------------------------------------------------------------------------------

    def answer(self, action: AnswerJob) -> None:
        """A result waits for `answered`, and for others to the same client."""
        outcome = action.outcome
        if isinstance(outcome, JobDone):
            released = self._debts.settle(action.client, action.job, quietly=True)
            answers: Sequence[Payload] = outcome.payloads  # type: ignore[assignment]  # as `Back` gave them to the core
            result = wire.Result(action.job, tuple(map(len, answers)), outcome.timeline, released)
            self._answers.add(action.client, result, list(chain.from_iterable(answers)))
        else:
            failure = wire.Failure(action.job, outcome.fault, outcome.text, outcome.retry_after_s)
            self._send(action.client, encode(failure, self._instance))
            self._debts.settle(action.client, action.job)

    def answered(self) -> None:
        """All that an event has brought about was answered."""
        self._answers.all_leave()

    def dissolved(self, action: PackDissolved) -> None:
        """Each member is answered by itself from now on."""
        self._debts.dissolve(action.client, action.pack, action.members)

    def cancelled(self, action: MembersCancelled) -> None:
        """Nothing is owed to them any more."""
        for member in action.members:
            self._debts.settle(action.client, member)

    def reply(self, question: Question, value: object = None, error: str | None = None) -> None:
        frames = encode(wire.Answer(question.request, error), self._instance)
        self._send(question.client, [*frames, msgpack.packb(value)])

    def _released(self, client: bytes, job: int) -> None:
        self._send(client, encode(wire.Released(job), self._instance))

    def _send(self, client: bytes, frames: Payload) -> None:
        """Never blocks. What a slow reader's pipe does not take waits in its outbox, up to a bound."""
        if client in self._answers:  # they were first
            self._answers.leave(client)
        if client not in self._outboxes and self._try_send(client, frames):
            return
        for given_up in self._outboxes.add(client, frames):
            # A farewell would have it send everything again, and not read that either.
            self._gone[given_up] = wire.Refusal("this client does not read its answers and was dropped")

    def _try_send(self, client: bytes, frames: Payload) -> bool:
        """False if the pipe is full. A client that is not connected any more takes everything, and is gone."""
        try:
            send_frames(self._inboxes[client[0]].socket, [client[1:], *frames])
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._gone[client] = None
        return True

    # --- time ---------------------------------------------------------------------------------------------------

    def next_deadline(self, now: float) -> float | None:
        """When `tend` is to be called at the latest."""
        if self._gone:
            return now
        instants = (self._outboxes.next_try(), self._presence.next_look(now))
        return min((instant for instant in instants if instant is not None), default=None)

    def tend(self, now: float) -> Iterator[Event]:
        """Tries the outboxes again and tells of clients that are gone."""
        self._outboxes.flush(self._try_send, now)
        for client in self._presence.silent(now):
            # One that waits for nothing need not ping, and nothing is taken from it.
            waits = client in self._debts or client in self._outboxes
            if not waits and self._lender is not None and self._lender.is_connected(client):
                self._presence.heard(client, now)  # it keeps what it was lent, and its connection tells when it goes
                continue
            silent = f"nothing was heard of this client for {SILENCE_S:g} s, so its jobs were cancelled"
            self._gone.setdefault(client, wire.Farewell(silent, unread=False) if waits else None)
        while self._gone:
            client, last_word = self._gone.popitem()
            self._forget(client)
            if last_word is not None:
                self._dismiss(client, last_word, now)
            yield ClientGone(client)

    def _dismiss(self, client: bytes, last_word: LastWord, now: float) -> None:
        """Tells a client, which may be alive, that its jobs are lost. In a full pipe that waits like an answer."""
        if count(self.refused, last_word.text):
            log.warning("dropped a client: %s", last_word.text, extra=about("client_dropped", reason=last_word.text))
        self._send(client, encode(last_word, self._instance))
        self._gone.pop(client, None)  # it need not be there to hear it
        if client in self._outboxes:
            self._presence.heard(client, now)  # so that this, too, is forgotten if it is never read

    def _forget(self, client: bytes) -> None:
        self._presence.forget(client)
        self._debts.forget(client)
        if self._lender is not None:
            self._lender.forget(client)
        self._outboxes.forget(client)
        if self._informed is not None:
            self._informed.discard(client)

"""The clients' side: one ROUTER an endpoint.

Nothing that a client sends can raise, block or be taken for another client's: a frame that is not understood is
answered with REFUSAL and counted. Where reading or answering one raises whatever else, which is a mistake of the
pool's, that client is dropped, counted and logged, and nobody else hears of it. A client is named by a number of its
own; its routing id is nobody's to know.
"""

import contextlib
import logging
import shlex
import socket
import time
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import zmq

from pool.clock import Alarm
from pool.core import Job
from pool.core.actions import JobFailed, UnpackChunk
from pool.core.events import ClientGone, Event, JobCancelled
from pool.keys import NAME, Entrant
from pool.logs import about, callers
from pool.serve import gate
from pool.serve.calls import Call, inputs_of
from pool.serve.clients import LOOK_S, Address, Client, Clients
from pool.serve.connections import Connections
from pool.serve.endpoints import Endpoint
from pool.serve.inbox import MOST_FRAMES
from pool.serve.memory_listener import MemoryListener
from pool.serve.outbox import RETRY_S, Outboxes
from pool.serve.payload import VIEW_BYTES, Payload
from pool.serve.pipes import Pipes
from pool.serve.questions import MOST_WAITING, Question, Questions
from pool.serve.refusals import count
from pool.serve.repeats import Repeats
from pool.serve.routes import is_given
from pool.serve.rows import Inputs, Whole
from pool.serve.shared_memory import SharedMemory
from pool.serve.standing import Standing, Standings
from pool.serve.zap import Zap
from pool.wire import client_messages as wire
from pool.wire.codec import packed
from pool.wire.faults import Fault
from pool.wire.frames import BadFrame, Envelope, decode, encode
from pool.wire.hot import Buffer
from pool.wire.message import Message
from pool.wire.multipart import send_frames
from pool.wire.rights import needed
from pool.wire.signatures import Refused
from pool.wire.unpacking import Unpacking

__all__ = ["Arrival", "Asked", "Front", "Question"]

log = logging.getLogger("pool.front")

CLIENT_HEADER_BYTES = 64 << 10  # a few names and numbers
SILENCE_S = 30.0  # a client with jobs here pings every second or so; after this it is gone
FLUSH_S = 1.0  # how long `close` waits for those who read their last answers slowly …
STALL_S = 0.25  # … as long as somebody takes one now and then
COMPARED_S = 1.0  # until a job that could not be compared with quarantined ones may come again
SHORTEST_S = 1e-3  # is left to a job whose time ended while it was compared: the core says so
PART_S = 0.5  # for the clients' last words: one that runs answers in milliseconds
PART_LOOK_S = 0.02  # how often the pipes of slow readers are tried meanwhile
OTHER_INSTANCE = "this message is for another instance of the pool, which has ended"
IMPERSONATES = "a client that comes as another one and has no right to"
LETTER_JOBS = 256  # of one client in one message: a header of some 20 KiB
LETTER_BYTES = 1 << 20  # what is larger costs more than a message does, and is better begun to be read


LastWord = wire.Farewell | wire.Refusal
Asked: TypeAlias = tuple[Any, ...]
Arrival: TypeAlias = tuple[Asked, Inputs, tuple[Any, ...]]
"""A job, as `Machine.arrived` wants it: what is said before the payload, the payload, and what is said after it."""


@dataclass(slots=True)
class Letter(wire.Results):
    """Results that leave as one message to one client. `size_bytes`: of all but the first."""

    results: list[wire.Result]
    payload: list[Buffer] = field(default_factory=list)
    size_bytes: int = 0


class Front:
    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        opened: wire.Opened,
        instance: bytes,
        most_replies: int,
        shared_memory: SharedMemory,
        turn: Alarm,
        standings: Standings | None = None,
    ) -> None:
        """`most_replies`: how many answers may wait for a slow reader before it is dropped.

        `turn` has the loop call `tend`, and answer `next_question`; it is set whenever there is something to do.
        The bytes that wait for all slow readers may be as many as one client's credit in `opened`.
        """
        self.refused: Counter[str] = Counter()
        self._context = context
        self._instance = instance
        self._opened = opened
        self._largest_credit = opened.credit_bytes  # the sockets take no larger message
        self.endpoints: list[Endpoint] = []
        self._standings = standings or Standings()
        self._clients = Clients(SILENCE_S, opened)
        self._shared_memory = shared_memory
        self._turn = turn
        self._memory_listener: MemoryListener | None = None
        self._repeats = Repeats()
        # With the digest, and when it came.
        self._compared: deque[tuple[Client, wire.Submit, Call, Inputs, bytes, float]] = deque()
        self._questions = Questions()
        self.waiting = 0
        """Jobs that have no answer yet, as results tell it."""
        self._letters: dict[Client, Letter] = {}  # that the orders of one dispatch have begun
        self._pipes = Pipes()
        self._outboxes = Outboxes(most_replies, opened.credit_bytes, self._pipes.held)
        self._gone: dict[Client, LastWord | None] = {}  # and what it is to be told, where it may still listen

    def adopt(self, opened: wire.Opened, most_replies: int, standings: Standings) -> None:
        """Other terms. A client that is connected hears of them as an answer to its next message.

        Who is somebody else now, or may do something else, has to connect again.

        A client's credit never becomes more than it was at first: the sockets that are bound would cut it off.
        """
        credit_bytes = min(opened.credit_bytes, self._largest_credit)
        opened = replace(opened, credit_bytes=credit_bytes)
        if opened != self._opened:
            self._opened = opened
        self._outboxes.adopt(most_replies, credit_bytes)
        self._standings = standings
        for client in self._clients.named.values():
            if self._is_another(client):
                self._ends(client, wire.Farewell("its [[client]] has changed", unread=False))

    def _standing(self, entrant: Entrant | None, uid: int | None, impersonates: str) -> Standing | None:
        """By the present configuration; None for who may not impersonate."""
        # `uid` is None of who comes over TCP without a key.
        own = self._standings.of_user(uid) if entrant is None else self._standings.of_key(entrant.name)
        return self._standings.impersonated(own, impersonates) if impersonates else own

    def _is_another(self, client: Client) -> bool:
        """Whether it is somebody else by now, or may do something else."""
        return client.standing != self._standing(client.entrant, client.uid, client.impersonates)

    def bind_local(self, path: Path) -> None:
        """Opens the Unix socket, for this user alone until it is opened to a group: its members, too, may submit and
        ask, not stop the pool. The caller holds the lock, so a file there is stale."""
        self._listen(gate.local(path), f"ipc://{path}")

    def lend(self, path: Path) -> None:
        """Opens the socket on which local clients are lent memory. The caller holds the lock."""
        self._memory_listener = MemoryListener(path, self._shared_memory, self.refused)

    def bind_remote(self, endpoint: str, connections: Connections, zap: Zap | None) -> None:
        """Opens a TCP endpoint; what comes from there may submit and ask, not stop the pool.

        `zap`: says whose keys may enter; None: every user of this machine may, so the endpoint is to be a loopback one.
        """
        try:
            listener, bound = gate.over_tcp(endpoint)
        except OSError as error:
            raise OSError(f"cannot listen at {endpoint}: {error.strerror or error}") from None
        self._listen(listener, bound, connections, zap)
        whom = "every user of this machine" if zap is None else "those whose keys may enter"
        log.info("listening at %s too, for %s", bound, whom, extra=about("listening", endpoint=bound))

    def _listen(
        self, listener: socket.socket, name: str, connections: Connections | None = None, zap: Zap | None = None
    ) -> None:
        most_bytes = self._opened.credit_bytes + (1 << 20)
        self.endpoints.append(Endpoint(self._context, listener, name, self.refused, most_bytes, connections, zap))

    @property
    def unread_bytes(self) -> int:
        """Of answers that their clients have not read yet, in libzmq's pipes and behind them."""
        return self._outboxes.size_bytes + self._pipes.size_bytes

    @property
    def clients(self) -> int:
        """How many are there."""
        return len(self._clients.present())

    def connections(self) -> Mapping[str, int]:
        """How many are there of each account."""
        return Counter(client.standing.account for client in self._clients.present())

    @property
    def call_bytes(self) -> int:
        """Of what clients have said of their calls."""
        return sum([client.calls.size_bytes for client in self._clients.named.values()])

    def part(self, text: str, *, unread: bool = True) -> None:
        """An ending pool takes leave of its clients, so that each knows what it may send to the next one.

            pool                         client
              │ last answers, FAREWELL ───► │  knows now that what else it has sent was never read
              │ ◄───────────────────  CLOSE │

        The CLOSE is waited for: when a connection ends, libzmq drops what its reader has not taken out of a socket that
        is IMMEDIATE, as those of clients are. Takes half a second at most; what comes meanwhile is not wanted.
        `unread`: all jobs that were read have been answered, so none of the others has started.
        """
        waiting = self._clients.present()
        for client in waiting:
            self._say(client, wire.Farewell(text, unread))
        now = time.monotonic()
        ends = now + PART_S
        poller = zmq.Poller()
        for endpoint in self.endpoints:
            poller.register(endpoint.socket, zmq.POLLIN)
        while waiting and now < ends:
            ready = dict(poller.poll(int(min(PART_LOOK_S, ends - now) * 1000) + 1))
            heard = [
                self.heard((index, route), frames, now)
                for index, endpoint in enumerate(self.endpoints)
                if endpoint.socket in ready
                for route, frames in endpoint.inbox.turn()
            ]
            now = time.monotonic()
            gone = {each.client for each in (*heard, *self.tend(now)) if isinstance(each, ClientGone)}
            waiting = [client for client in waiting if client.name not in gone]

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
        for name in self._outboxes.clients():
            self._outboxes.forget(name)
        for endpoint in self.endpoints:
            endpoint.close()
        if self._memory_listener is not None:
            self._memory_listener.close()
        self._shared_memory.close()

    # --- in -----------------------------------------------------------------------------------------------------

    def fds(self) -> Sequence[int]:
        """Descriptors that are readable when a client wants memory, has gone, or may have room for an answer."""
        return [self._pipes.fd] if self._memory_listener is None else [self._pipes.fd, self._memory_listener.fd]

    def on_readable(self) -> None:
        """`tend` does what it is about, and tells of clients that have gone."""
        if self._outboxes:
            self._outboxes.hurry()
            self._turn.soon()
        self._pipes.drain()
        if self._memory_listener is None:
            return
        for name in self._memory_listener.turn():
            if (client := self._clients.named.get(name)) is not None:
                self._ends(client, self._gone.get(client))
        if self._memory_listener.pauses:
            self._turn.soon()

    def heard(self, address: Address, frames: list[zmq.Frame] | None, now: float) -> Arrival | Event | None:
        """What the core is to be told of a message of an endpoint: mostly that a job arrived; None: nothing.

        `address`: the index of the endpoint, and the routing id. Questions wait for `next_question`.
        """
        client = self._clients.at.get(address)
        try:
            if client is None and not is_given(address[1]):
                raise BadFrame("a routing id that its peer has chosen")
            if frames is None:
                raise BadFrame(f"a message of more than {MOST_FRAMES} frames")
            self.endpoints[address[0]].heard(frames)
            envelope = decode(wire.CLIENT_MESSAGES, frames, CLIENT_HEADER_BYTES)
            message = envelope.message
            if client is None:
                client = self._begins(address, frames[0], envelope)
                if client is None:
                    return None
            elif client.entrant is not None and not client.entrant.may_stay:
                self._ends(client, wire.Farewell("its key may not enter any more", unread=False))
                return None
            self._clients.heard(client, now)
            if self._turn.instant > now + LOOK_S:  # it need not be told with each message
                self._turn.by(now + LOOK_S)
            if client.terms is not self._opened:
                self._inform(client, envelope)
            if type(message) is wire.Open:
                if message.impersonates != client.impersonates:
                    raise BadFrame("a connection stays the client that it came as")
                self._tell_terms(client)
                return None
            if envelope.instance != self._instance:
                raise BadFrame(OTHER_INSTANCE)
            if type(message) is wire.Submit:
                return self._submitted(client, message, envelope.payload, frames, now)
            return self._event(client, message)
        except BadFrame as error:
            self._refuse(address, str(error))
        except Exception as error:
            self._drop(self._clients.find(address), error, "read what it sent")
        return None

    def _begins(self, address: Address, frame: zmq.Frame, envelope: Envelope) -> Client | None:
        """Who it is that speaks for the first time; None: it is not to go on, and was told so.

        Raises `BadFrame` for a key that may not enter any more.
        """
        message = envelope.message
        if type(message) is not wire.Open:  # the pool has forgotten it, and as whom it came
            if envelope.instance != self._instance:
                raise BadFrame(OTHER_INSTANCE)
            if type(message) is not wire.Close:
                self._say_to(address, wire.Farewell("it was forgotten", unread=False))
            return None
        entrant, uid = self.endpoints[address[0]].speaker(frame)
        name = message.impersonates
        if name and NAME.fullmatch(name) is None:
            raise BadFrame(f"{name!r:.80} is no client's name")
        standing = self._standing(entrant, uid, name)
        if standing is None:
            if count(self.refused, IMPERSONATES):
                log.warning("refused %s", IMPERSONATES, extra=about("message_refused", reason=IMPERSONATES))
            self._say_to(address, wire.Denied(needed("another client's name", "impersonate")))
            return None
        return self._clients.find(address, standing, entrant, uid, name)

    def parted(self, client: bytes) -> None:
        """The core has heard that it is gone, and what that brought about was sent."""
        self._pipes.forget(client)

    def _inform(self, client: Client, envelope: Envelope) -> None:
        """Of the present terms, if it has heard of former ones: whoever opens is told anyway, whoever closes goes."""
        if isinstance(envelope.message, wire.Open):
            client.terms = self._opened
        elif envelope.instance == self._instance and not isinstance(envelope.message, wire.Close):
            client.terms = self._opened
            self._tell_terms(client)

    def _tell_terms(self, client: Client) -> None:
        opened = self._opened
        if self._memory_listener is not None and self._is_local(client):
            opened = replace(opened, ticket=self._memory_listener.ticket(client.name))
        self._say(client, opened)

    def _event(self, client: Client, message: Message) -> Event | None:
        """What is said now and then. Raises `BadFrame`."""
        match message:
            case wire.Cancel(job, member):
                if member and job not in client.comparing:  # it stays owed
                    return JobCancelled(client.name, job, member)
                if member:
                    self._say(client, wire.Unpack(job, Unpacking.CANCELLED, False, "one of its jobs was cancelled"))
                client.settle(job)
                self._forget_comparing(client, job)
                return JobCancelled(client.name, job)
            case wire.Forget(call):
                client.calls.forget(call)
            case wire.Ping():
                self._say(client, wire.Pong())
            case wire.Ask(request, what, about):
                question = Question(client.name, request, what, about, client.standing)
                self._turn.soon()
                if not self._questions.add(question):
                    why = f"{MOST_WAITING} questions of this client already wait for answers"
                    self.reply(question, Refused(why, Fault.OVERLOADED))
            case wire.Close():
                self._forget(client)
                self._clients.forget(client)
                return ClientGone(client.name)
            case other:
                raise BadFrame(f"{type(other).__name__} is not a client's message")
        return None

    def next_question(self) -> Question | None:
        """The one to answer in this turn of the loop."""
        return self._questions.next()

    def quarantined(self, inputs: Inputs, now: float) -> None:
        """The same inputs are not run again for a while."""
        self._repeats.quarantined(inputs, now)
        self._turn.soon()

    def _submitted(
        self,
        client: Client,
        submit: wire.Submit,
        buffers: Sequence[Whole],
        frames: Sequence[zmq.Frame],
        now: float,
    ) -> Arrival | None:
        try:
            call = client.calls.of(submit, client.standing)
        except BadFrame as error:
            self._unreadable(client, submit.job, error)
            return None
        if submit.job in client.owed:  # nothing of the first is another's, or released
            text = f"job {submit.job} is already in the pool"
            self._say(client, wire.Failure(submit.job, Fault.INVALID_INPUT, text, None))
            return None
        if call is None:
            self._say(client, wire.Unregistered(submit.job))
            self._released(client, submit.job)
            return None
        if call.refusal is not None:
            self._say(client, wire.Failure(submit.job, *call.refusal, None))
            self._released(client, submit.job)
            return None
        try:
            inputs = inputs_of(client.name, submit, call, buffers, frames, self._shared_memory, self._let_go)
        except BadFrame as error:
            self._unreadable(client, submit.job, error)
            return None
        client.owed[submit.job] = inputs.regions
        if self._repeats.samples and self._repeats.suspects(inputs, now):
            self._compare(client, submit, call, inputs, now)
            return None
        return _arrival(client, submit, call, inputs, submit.timeout_s)

    def _unreadable(self, client: Client, job: int, error: BadFrame) -> None:
        text = f"the job cannot be read: {error}"
        if count(self.refused, text):
            said = callers(text)
            log.warning("refused a job of a client: %s", said, extra=about("job_refused", reason=said))
        self._say(client, wire.Failure(job, Fault.INVALID_INPUT, text, None))
        self._released(client, job)

    def _compare(self, client: Client, submit: wire.Submit, call: Call, inputs: Inputs, now: float) -> None:
        """A job whose inputs may be those of a quarantined one arrives, in `tend`, when all of them were read."""
        reading = self._repeats.read(
            inputs, lambda digest: self._compared.append((client, submit, call, inputs, digest, now))
        )
        self._turn.soon()
        if reading is None:
            text = "the pool is already comparing too many jobs with quarantined ones"
            self._fail(client, submit.job, Fault.OVERLOADED, text, COMPARED_S)
        else:
            client.comparing[submit.job] = reading

    def _arrivals(self, now: float) -> Iterator[Arrival]:
        self._repeats.step()
        while self._compared:
            client, submit, call, inputs, digest, since = self._compared.popleft()
            del client.comparing[submit.job]
            if (why := self._repeats.refusal(digest, now)) is not None:
                count(self.refused, "a job with the inputs of a quarantined one")
                self._fail(client, submit.job, Fault.QUARANTINED, why, None)
            else:
                left_s = max(SHORTEST_S, submit.timeout_s - (now - since))
                yield _arrival(client, submit, call, inputs, left_s)

    def _forget_comparing(self, client: Client, job: int) -> None:
        """Nobody waits for it any more."""
        if (reading := client.comparing.pop(job, None)) is not None:
            reading.give_up()
            self._compared = deque(each for each in self._compared if each[0] is not client or each[1].job != job)

    def _fail(self, client: Client, job: int, fault: Fault, text: str, retry_after_s: float | None) -> None:
        """A job that the core has not heard of."""
        self._say(client, wire.Failure(job, fault, text, retry_after_s))
        client.settle(job)

    def _refuse(self, address: Address, text: str) -> None:
        if count(self.refused, text):
            said = callers(text)
            log.warning("refused a message from a client: %s", said, extra=about("message_refused", reason=said))
        client = self._clients.at.get(address)
        if client is not None:
            self._send(client, encode(wire.Refusal(text), self._instance))
        else:
            self._say_to(address, wire.Refusal(text))

    def _say_to(self, address: Address, message: Message) -> None:
        """To somebody who is no client: nothing is kept for him."""
        index, route = address
        with contextlib.suppress(zmq.ZMQError):
            send_frames(self.endpoints[index].socket, [route, *encode(message, self._instance)])

    def _is_local(self, client: Client) -> bool:
        return self.endpoints[client.address[0]].is_local

    def _drop(self, client: Client, error: Exception, doing: str) -> None:
        """The pool's own mistake with one client ends that client: what is known of it may not be right any more."""
        kind = f"the pool failed when it {doing}: {type(error).__name__}"
        if count(self.refused, kind):
            extra = about("client_dropped", reason=f"{kind}: {error}")
            log.error("dropped a client: %s: %s", kind, error, exc_info=error, extra=extra)
        self._ends(
            client, wire.Refusal("an internal error of the pool; its log has the details, and this client was dropped")
        )

    def _ends(self, client: Client, last_word: LastWord | None) -> None:
        """`tend` tells that it is gone."""
        self._gone[client] = last_word
        self._turn.soon()

    # --- out ----------------------------------------------------------------------------------------------------

    def done(self, job: Job, payloads: tuple[object, ...]) -> None:
        """The result of a job, which waits for `answered`, and for others to the same client."""
        client = self._clients.named.get(job.client.route)
        if client is None:
            return
        number, timeline = job.number, job.timeline()
        assert timeline is not None, "it is done"
        released = client.settle(number, quietly=True)
        answers: tuple[Payload, ...] = payloads  # type: ignore[assignment]  # as `Back` gave them to the core
        result = wire.Result(number, tuple(map(len, answers)), timeline, released, job.key.chunks)
        if client not in self._letters:  # the first would be a message by itself, and is not counted
            self._letters[client] = letter = Letter([result], self.waiting)
            for piece in answers:
                letter.payload += piece
            return
        letter = self._letters[client]
        letter.results += (result,)
        for piece in answers:
            letter.payload += piece
            letter.size_bytes += sum(map(len, piece)) + VIEW_BYTES * len(piece)
        if letter.size_bytes >= LETTER_BYTES or len(letter.results) >= LETTER_JOBS:
            self._leave(client)

    def answered(self) -> None:
        """All that a dispatch has brought about was answered."""
        for client in [*self._letters]:
            self._leave(client)

    def _leave(self, client: Client) -> None:
        letter = self._letters[client]
        del self._letters[client]
        try:
            frames = letter.to_frames(self._instance, letter.payload)
        except Exception as error:
            self._drop(client, error, "sent results to it")
        else:
            self._send(client, frames)

    def failed(self, name: bytes, job: int, failed: JobFailed, kept: Path | None = None) -> None:
        """Why a job of the client has no result. `kept`: the file with its inputs, for this machine."""
        if (client := self._clients.named.get(name)) is not None:
            text = failed.text if client.standing.models is not None else failed.text + failed.others
            if kept is not None and self._is_local(client):
                text += f"; `pool submit --replay {shlex.quote(str(kept))}` runs it again"
            self._fail(client, job, failed.fault, text, failed.retry_after_s)

    def unpacked(self, action: UnpackChunk) -> None:
        """In the place of an answer."""
        if (client := self._clients.named.get(action.client)) is not None:
            self._say(client, wire.Unpack(action.job, action.cause, action.ran, action.text))
            client.settle(action.job)

    def reply(self, question: Question, value: object = None) -> None:
        """With a value or, as a `Refused`, why there is none. What msgpack can't hold ends the one who asked for it."""
        client = self._clients.named.get(question.client)
        if client is None:
            return
        if isinstance(value, Refused):
            self._say(client, wire.Answer(question.request, str(value), value.fault), [packed(None)])
            return
        try:
            payload = packed(value)
        except Exception as failed:
            self._drop(client, failed, "packed the answer to its question")
            return
        self._say(client, wire.Answer(question.request, None), [payload])

    def _let_go(self, name: bytes, job: int) -> None:
        """Nobody uses any more what the job was lent."""
        if (client := self._clients.named.get(name)) is not None:
            self._released(client, job)

    def _released(self, client: Client, job: int) -> None:
        self._say(client, wire.Released(job))

    def _say(self, client: Client, message: Message, payload: Payload = ()) -> None:
        """What can't be put into bytes ends the client that it is about."""
        try:
            frames = encode(message, self._instance, payload)
        except Exception as error:
            self._drop(client, error, f"sent {type(message).__name__} to it")
            return
        self._send(client, frames)

    def _send(self, client: Client, frames: Payload) -> None:
        """Never blocks. What a slow reader's pipe does not take waits in its outbox, up to a bound."""
        if client in self._letters:  # they were first
            self._leave(client)
        name = client.name
        if (not self._outboxes.size_bytes or name not in self._outboxes) and self._try_send(name, frames):
            return
        self._pipes.is_waited_for = True
        for given_up in self._outboxes.add(name, frames):
            # A farewell would have it send everything again, and not read that either.
            if (unread := self._clients.named.get(given_up)) is not None:
                self._ends(unread, wire.Refusal("the pool dropped this client because it does not read its answers"))
        if (retry := self._outboxes.next_try()) is not None:
            self._turn.by(retry)

    def _try_send(self, name: bytes, frames: Payload) -> bool:
        """False if the pipe is full. A client that is not connected any more takes everything, and is gone."""
        client = self._clients.named.get(name)
        if client is None:
            return True
        index, route = client.address
        try:
            return self._pipes.send(name, self.endpoints[index].socket, route, frames)
        except zmq.ZMQError as error:
            if error.errno != zmq.EHOSTUNREACH:
                raise
            self._ends(client, None)
            return True

    # --- time ---------------------------------------------------------------------------------------------------

    def tend(self, now: float) -> Iterator[Arrival | Event]:
        """Tries the outboxes again, and tells of jobs that were compared and of clients that are gone."""
        yield from self._arrivals(now)
        self._outboxes.flush(self._try_send, now)
        self._pipes.is_waited_for = bool(self._outboxes)
        if self._memory_listener is not None:
            self._memory_listener.look(now)
        for client in self._clients.silent(now):
            # One that waits for nothing need not ping, and nothing is taken from it.
            waits = bool(client.owed) or client.name in self._outboxes
            if not waits and self._memory_listener is not None and self._memory_listener.is_connected(client.name):
                self._clients.heard(client, now)  # it keeps what it was lent, and its connection tells when it goes
                continue
            silent = f"the pool heard nothing from this client for {SILENCE_S:g} s and cancelled its jobs"
            self._gone.setdefault(client, wire.Farewell(silent, unread=False) if waits else None)
        while self._gone:
            client, last_word = self._gone.popitem()
            self._forget(client)
            self._clients.rest(client)
            if last_word is not None:
                self._dismiss(client, last_word, now)
            if self._is_another(client):  # whatever it heard, it is not to go on as whom it was
                self._clients.forget(client)
            yield ClientGone(client.name)
            self._pipes.forget(client.name)
        if self._gone or self._questions or self._repeats or self._compared:
            self._turn.soon()
        listener = None if self._memory_listener is None else self._memory_listener.next_look(now)
        for instant in (listener, self._outboxes.next_try(), self._clients.next_look(now)):
            if instant is not None:
                self._turn.by(instant)

    def _dismiss(self, client: Client, last_word: LastWord, now: float) -> None:
        """Tells a client, which may be alive, that its jobs are lost. In a full pipe that waits like an answer."""
        if count(self.refused, last_word.text):
            log.warning("dropped a client: %s", last_word.text, extra=about("client_dropped", reason=last_word.text))
        self._say(client, last_word)
        self._gone.pop(client, None)  # it need not be there to hear it
        if client.name in self._outboxes:
            self._clients.heard(client, now)  # so that this, too, is forgotten if it is never read

    def _forget(self, client: Client) -> None:
        """All but its name."""
        client.forget()
        self._compared = deque(each for each in self._compared if each[0] is not client)
        if self._memory_listener is not None:
            self._memory_listener.forget(client.name)
        self._outboxes.forget(client.name)
        self._pipes.forget(client.name)
        self._questions.forget(client.name)


def _arrival(client: Client, submit: wire.Submit, call: Call, inputs: Inputs, timeout_s: float) -> Arrival:
    names = call.names
    return (
        (
            *(client.name, submit.job, names.model, call.signature, names.outputs, submit.rows, timeout_s),
            *(submit.priority, names.device, inputs.size_bytes, inputs.form),
        ),
        inputs,
        (submit.attempts, submit.in_doubt, submit.weight, submit.origin, names.version),
    )

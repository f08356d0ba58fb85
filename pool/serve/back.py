"""The workers' side: one ROUTER, a peer a lane and one for each control thread.

A peer is nobody until its HELLO shows the secret that only that incarnation inherited; what it says before, and what
a former incarnation says, is dropped and counted. A worker that says what cannot be understood is broken, and so is one
whose message the pool fails to read in whatever way. So is one whose HELLO has the secret and cannot be true: nobody
else knows it, and who is welcomed as somebody else may wait for ever.

A HELLO of another version is answered with REFUSAL, whoever says it, and changes nothing here: what became of a worker
is told by its exit status alone.
"""

import contextlib
import hmac
import logging
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import zmq

from pool.core import Batch
from pool.core import events as told
from pool.core.events import Event, Failure, WorkerBeat, WorkerBroken, WorkerHello, WorkerReady
from pool.core.fleet import WorkerId
from pool.logs import about
from pool.serve import gate
from pool.serve.handouts import Handouts
from pool.serve.inbox import Inbox
from pool.serve.lane_calls import LaneCalls
from pool.serve.refusals import count
from pool.serve.remarks import Remarks
from pool.serve.routes import is_given, new_router
from pool.serve.rows import Cut, Halves, Inputs
from pool.wire import worker_messages as wire
from pool.wire.codec import MAX_HEADER_BYTES
from pool.wire.frames import BadFrame, OtherVersion, decode, encode
from pool.wire.hot import Buffer
from pool.wire.independence import RowsCompared
from pool.wire.message import Message
from pool.wire.multipart import send_frames
from pool.wire.refusal import Refusal

__all__ = ["Back", "CannotSay", "Ended"]

log = logging.getLogger("pool.back")

RECEIVE_HIGH_WATER_MARK = 64  # messages, as at the clients' side; a worker has one answer a lane, and beats

# Of whoever has not shown a secret: a HELLO, and nothing that takes long to read.
STRANGER_FRAMES = 2
STRANGER_HEADER_BYTES = 1024
MOST_PIDS, MOST_GPUS, MOST_BYTES = 1024, 256, 1 << 50  # the next worker is told of them
MOST_LANES = 64  # the configuration allows 16; a worker that claims more lies

Peer = tuple[int, int, int | None]  # and the lane; None is the control thread
Ended: TypeAlias = tuple[tuple[int, int, int, int], Sequence[object], dict[int, Failure], float, float]
"""Of a batch: slot, incarnation, lane and its number; the answer of each part; why others have none; run_s, fetch_s."""


class CannotSay(Exception):
    """A RUN that can't be put into bytes, by the fault of a job in it. Nothing of it was sent."""


class Back:
    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        path: Path,
        instance: bytes,
        handouts: Handouts,
        held: Callable[[int, int, wire.DeviceHeld], None],
    ) -> None:
        """`held` is told what a worker takes of its GPUs.

        Binds at once. The caller holds the endpoint's lock, so a file there is stale.
        """
        self.dropped: Counter[str] = Counter()
        self.endpoint = f"ipc://{path}"
        self._instance = instance
        self._secrets: dict[WorkerId, bytes] = {}
        self._peers: dict[bytes, Peer] = {}
        self._routes: dict[Peer, bytes] = {}
        self._calls: dict[Peer, LaneCalls] = {}
        self._lanes: dict[WorkerId, int] = {}  # how many the worker was told to have; it has none before
        self._handouts = handouts
        self._held = held
        self.remarks = Remarks()
        listener = gate.local(path)
        self.socket = new_router(context)
        self.socket.linger = 0
        self.socket.rcvhwm = RECEIVE_HIGH_WATER_MARK
        self.inbox = Inbox(self.socket, lambda route: sys.maxsize if route in self._peers else STRANGER_FRAMES)
        # Workers may still come when clients may not.
        self.gate = gate.Gate(self.socket, listener, self.endpoint, self.dropped, share=0.5)

    def close(self) -> None:
        self.gate.close()
        self.socket.close()

    def expect(self, slot: int, incarnation: int, secret: bytes) -> None:
        """Lets in who shows this secret."""
        self._secrets[(slot, incarnation)] = secret

    def forget(self, slot: int, incarnation: int) -> None:
        """The incarnation's exit was seen; its frames still on the way are nobody's."""
        self._secrets.pop((slot, incarnation), None)
        self._lanes.pop((slot, incarnation), None)
        self.remarks.forget((slot, incarnation))
        for peer in [peer for peer in self._routes if peer[:2] == (slot, incarnation)]:
            self._peers.pop(self._routes.pop(peer), None)
        for peer in [peer for peer in self._calls if peer[:2] == (slot, incarnation)]:
            del self._calls[peer]

    # --- in -----------------------------------------------------------------------------------------------------

    def heard(self, route: bytes, frames: list[zmq.Frame] | None) -> Event | Ended | None:
        """What the core is to be told of a message of the inbox: mostly that a batch is done; None: nothing."""
        peer = self._peers.get(route)
        try:
            if peer is None or frames is None:
                return self._of_stranger(route, frames)
            envelope = decode(wire.WORKER_MESSAGES, frames, MAX_HEADER_BYTES)
            done = envelope.message
            slot, incarnation, lane = peer
            if type(done) is not wire.Done or lane is None:
                return self._event(route, peer, done)
            payloads: list[list[Buffer] | None] = []
            buffers, position = envelope.payload, 0  # as many of them as it says: `Done.read` has looked
            for each in done.frames:
                payloads += (buffers[position : position + each] if each else None,)
                position += each
            failures = done.failed() if done.failures else {}
            if self._handouts.regions:
                self._handouts.ended((slot, incarnation), done.batch)
            return (slot, incarnation, lane, done.batch), payloads, failures, done.run_s, done.fetch_s
        except BadFrame as error:
            if isinstance(error, OtherVersion):
                self._refuse(route, error)
            return self._dropped(self._peers.get(route), str(error))
        except Exception as error:
            return self._failed(self._peers.get(route), error)

    def _of_stranger(self, route: bytes, frames: list[zmq.Frame] | None) -> Event | None:
        """Of a peer that has not said HELLO. Raises `BadFrame`."""
        if not is_given(route):
            raise BadFrame("a routing id that its peer has chosen")
        if frames is None:
            raise BadFrame(f"a message of more than {STRANGER_FRAMES} frames before HELLO")
        if len(frames[0]) > STRANGER_HEADER_BYTES:
            raise BadFrame(f"a first frame of {len(frames[0])} bytes before HELLO")
        message = decode(wire.WORKER_MESSAGES, frames, STRANGER_HEADER_BYTES).message
        if not isinstance(message, wire.Hello):
            raise BadFrame(f"{type(message).__name__} before HELLO")
        return self._hello(route, message)

    def _event(self, route: bytes, peer: Peer, message: Message) -> Event | None:
        slot, incarnation, lane = peer
        match message:
            case wire.Beat(phase, detail, running):
                if len(running) > MOST_LANES or not all(math.isfinite(lane.age_s) for lane in running):
                    raise BadFrame(f"a beat of {len(running)} lanes, or of lanes without an age")
                return WorkerBeat(slot, incarnation, phase, detail, running)
            case wire.Ready(lanes, models):
                return WorkerReady(slot, incarnation, lanes, models)
            case RowsCompared() as compared if lane is not None:
                return told.WorkerCompared(slot, incarnation, compared)
            case wire.DeviceHeld(pids, _, levels, size_bytes) if lane is None:
                if len(pids) > MOST_PIDS or len(levels) > MOST_GPUS or not 0 <= (size_bytes or 0) < MOST_BYTES:
                    raise BadFrame(f"{len(pids)} pids on {len(levels)} GPUs, with {size_bytes} bytes")
                self._held(slot, incarnation, message)
                return None
            case wire.Remark():
                self.remarks.hear((slot, incarnation), message)
                return None
            case wire.Hello():
                return self._hello(route, message)
        raise BadFrame(f"{type(message).__name__} is not a message that this peer may send")

    def _hello(self, route: bytes, hello: wire.Hello) -> Event | None:
        secret = self._secrets.get((hello.slot, hello.incarnation))
        if secret is None or not hmac.compare_digest(secret, hello.secret):
            raise BadFrame(f"HELLO of slot {hello.slot} incarnation {hello.incarnation} without its secret")
        peer = (hello.slot, hello.incarnation, hello.lane)
        if (wrong := self._wrong(route, peer)) is not None:
            return self._dropped(peer, wrong)
        self._peers[route] = peer
        self._routes[peer] = route
        if hello.lane is None:
            return WorkerHello(hello.slot, hello.incarnation)
        self._send(peer, encode(wire.WelcomeLane(), self._instance))
        return None

    def _refuse(self, route: bytes, error: OtherVersion) -> None:
        """Never blocks: one who does not read is told nothing."""
        if error.kind == wire.Hello.kind and route not in self._peers:
            with contextlib.suppress(zmq.ZMQError):
                send_frames(self.socket, [route, *encode(Refusal(str(error)), self._instance)])

    def _wrong(self, route: bytes, peer: Peer) -> str | None:
        """Why a HELLO is none that this worker says if it is well."""
        slot, incarnation, lane = peer
        if route in self._peers:
            return "HELLO from a peer that has said it"
        if lane is None:
            return "a second HELLO of the control thread" if peer in self._routes else None
        lanes = self._lanes.get((slot, incarnation))
        if lanes is None:
            return f"HELLO of lane {lane} before WELCOME"
        if not 0 <= lane < lanes:
            return f"HELLO of lane {lane} of {lanes}"
        return f"a second HELLO of lane {lane}" if peer in self._routes else None

    def _dropped(self, peer: Peer | None, why: str) -> Event | None:
        if count(self.dropped, why):
            self._tell_dropped(peer, why)
        return None if peer is None else WorkerBroken(peer[0], peer[1], why)

    def _failed(self, peer: Peer | None, error: Exception) -> Event | None:
        """The pool's own mistake with one worker ends that worker: an answer may be missing for ever."""
        kind = f"the pool failed when it read a message: {type(error).__name__}"
        what = f"{kind}: {error}"
        if count(self.dropped, kind):
            log.error("a worker's message: %s", what, exc_info=error, extra=about("worker_message_failed", reason=what))
        return None if peer is None else WorkerBroken(peer[0], peer[1], what)

    def _tell_dropped(self, peer: Peer | None, why: str) -> None:
        slot, incarnation = (None, None) if peer is None else peer[:2]
        who = "an unknown peer" if peer is None else f"slot {slot} incarnation {incarnation}"
        extra = about("worker_message_dropped", slot=slot, incarnation=incarnation, reason=why)
        log.warning("dropped a message from %s: %s", who, why, extra=extra)

    # --- out ----------------------------------------------------------------------------------------------------

    def welcome(self, slot: int, incarnation: int, welcome: wire.Welcome) -> bool:
        sent = self.tell(slot, incarnation, welcome)
        if sent and not welcome.hold:
            self._lanes[slot, incarnation] = welcome.lanes
        return sent

    def take_slot(self, slot: int, incarnation: int, welcome: wire.Welcome) -> bool:
        sent = self.tell(slot, incarnation, wire.TakeSlot(welcome))
        if sent:
            self._lanes[slot, incarnation] = welcome.lanes
        return sent

    def tell(self, slot: int, incarnation: int, message: Message) -> bool:
        """The control thread."""
        return self._send((slot, incarnation, None), encode(message, self._instance))

    def run(self, batch: Batch) -> bool:
        """False: the lane cannot be reached, which only a dying worker's lane cannot. Raises `CannotSay`."""
        worker, peer = (batch.slot, batch.incarnation), (batch.slot, batch.incarnation, batch.lane)
        key, parts = batch.key, batch.parts
        route = self._routes.get(peer)
        if route is None:
            return False
        buffers: list[zmq.Frame | Cut] = []
        rows: list[int] = []
        whole, lent_to = True, False
        first: Inputs = parts[0].job.payload  # type: ignore[assignment]  # as `Front` gave it to the core
        try:
            for part in parts:
                inputs: Inputs = part.job.payload  # type: ignore[assignment]
                whole_job = part.start == 0 and part.stop == inputs.rows
                cut = inputs.buffers if whole_job else inputs.cut(part.start, part.stop)
                buffers += cut
                rows += (part.rows,)
                whole = whole and cut is inputs.buffers
                lent_to = lent_to or inputs.regions is not None
        except Exception as error:
            raise self._unsayable(batch, error) from error
        lent, spaces = self._handouts.begun(worker, batch.number, parts, buffers) if lent_to else ((), ())
        if peer not in self._calls:
            self._calls[peer] = LaneCalls()
        calls = self._calls[peer]
        what = model, signature, outputs, table = key.line.model.name, key.signature, key.outputs, first.table
        call, registers = calls.number(what)
        halves = () if whole else tuple([place for place, each in enumerate(buffers) if isinstance(each, Halves)])
        run = wire.Run(
            batch.number,
            model,
            signature,
            outputs,
            () if first.rows is None else tuple(rows),
            batch.padded,
            batch.joined,
            lent,
            spaces,
            batch.microbatch if batch.padded > batch.microbatch else 0,
            batch.owner,
            halves,
            call,
            registers,
        )
        sent = False
        try:
            # `begun` has left no Region among them.
            frames = run.to_frames(self._instance, [table, *(_in_frames(buffers) if halves else buffers)])
        except Exception as error:
            raise self._unsayable(batch, error) from error
        else:
            sent = self._send_to(route, frames)
        finally:
            if not sent:
                self._handouts.ended(worker, batch.number)
                if registers:
                    calls.unsent(what)
        return sent

    def _unsayable(self, batch: Batch, error: Exception) -> CannotSay:
        kind = f"the pool failed when it sent a job to a worker: {type(error).__name__}"
        what = f"{kind}: {error}"
        if count(self.dropped, kind):
            extra = about("run_not_written", slot=batch.slot, batch=batch.number, reason=what)
            log.error("model %s: %s", batch.model, what, exc_info=error, extra=extra)
        return CannotSay(what)

    def _send(self, peer: Peer, frames: Sequence[Buffer]) -> bool:
        route = self._routes.get(peer)
        return route is not None and self._send_to(route, frames)

    def _send_to(self, route: bytes, frames: Sequence[Buffer]) -> bool:
        """Never blocks: a lane's credit is one batch, so a pipe that is full belongs to a worker that does not read."""
        try:
            send_frames(self.socket, [route, *frames])
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        return True


def _in_frames(buffers: Iterable[zmq.Frame | Cut]) -> Iterator[object]:
    for buffer in buffers:
        if isinstance(buffer, Halves):
            yield from (buffer.ends, buffer.blob)
        else:
            yield buffer

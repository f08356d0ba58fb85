"""The workers' side: one ROUTER, a peer a lane and one for each control thread.

A peer is nobody until its HELLO shows the secret that only that incarnation inherited; what it says before, and what
a former incarnation says, is dropped and counted. A worker that says what cannot be understood is broken.
"""

import hmac
import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import zmq

from pool.core.actions import RunBatch
from pool.core.events import (
    BatchDone,
    Event,
    Failed,
    Outcome,
    RowsChanged,
    Spoiled,
    Succeeded,
    WorkerBeat,
    WorkerBroken,
    WorkerHello,
    WorkerReady,
)
from pool.logs import about
from pool.router.arenas import LentBuffer
from pool.router.handouts import Handouts
from pool.router.refusals import count
from pool.router.remarks import Remarks
from pool.router.rows import Inputs
from pool.wire import worker_messages as wire
from pool.wire.frames import BadFrame, Envelope, decode, encode
from pool.wire.multipart import receive_frames, send_frames

__all__ = ["Back"]

log = logging.getLogger("pool.back")

RECEIVE_BURST = 64
RECEIVE_HIGH_WATER_MARK = 64  # messages, as at the clients' side; a worker has one answer a lane, and beats

Seat = tuple[int, int]  # slot, incarnation
Peer = tuple[int, int, int | None]  # and the lane; None is the control thread


class Back:
    def __init__(
        self,
        context: "zmq.Context[zmq.Socket[bytes]]",
        path: Path,
        instance: bytes,
        handouts: Handouts,
    ) -> None:
        """Binds at once. The caller holds the endpoint's lock, so a file there is stale."""
        self.dropped: Counter[str] = Counter()
        self.endpoint = f"ipc://{path}"
        self._instance = instance
        self._secrets: dict[Seat, bytes] = {}
        self._peers: dict[bytes, Peer] = {}
        self._routes: dict[Peer, bytes] = {}
        self._handouts = handouts
        self.remarks = Remarks()
        path.unlink(missing_ok=True)
        self.socket = context.socket(zmq.ROUTER)
        self.socket.router_mandatory = True
        self.socket.linger = 0
        self.socket.rcvhwm = RECEIVE_HIGH_WATER_MARK
        before = os.umask(0o177)
        try:
            self.socket.bind(self.endpoint)
        finally:
            os.umask(before)

    def close(self) -> None:
        self.socket.close()

    def expect(self, slot: int, incarnation: int, secret: bytes) -> None:
        """Lets in who shows this secret."""
        self._secrets[(slot, incarnation)] = secret

    def forget(self, slot: int, incarnation: int) -> None:
        """The incarnation's exit was seen; its frames still on the way are nobody's."""
        self._secrets.pop((slot, incarnation), None)
        self.remarks.forget((slot, incarnation))
        for peer in [peer for peer in self._routes if peer[:2] == (slot, incarnation)]:
            self._peers.pop(self._routes.pop(peer), None)

    # --- in -----------------------------------------------------------------------------------------------------

    def receive(self) -> Iterator[Event]:
        """At most a burst of messages; there may be more."""
        for _ in range(RECEIVE_BURST):
            try:
                frames = receive_frames(self.socket)
            except zmq.Again:
                return
            route = frames[0].bytes
            try:
                if len(frames) < 3:
                    raise BadFrame(f"{len(frames)} frames")
                event = self._event(route, decode(wire.WORKER_MESSAGES, frames[1].bytes, frames[2].buffer, frames[3:]))
            except BadFrame as error:
                peer = self._peers.get(route)
                if count(self.dropped, str(error)):
                    self._tell_dropped(peer, str(error))
                event = None if peer is None else WorkerBroken(peer[0], peer[1], str(error))
            if event is not None:
                yield event

    def _event(self, route: bytes, envelope: Envelope[zmq.Frame]) -> Event | None:
        message = envelope.message
        if isinstance(message, wire.Hello):
            return self._hello(route, message)
        peer = self._peers.get(route)
        if peer is None:
            raise BadFrame(f"{type(message).__name__} before HELLO")
        slot, incarnation, lane = peer
        match message:
            case wire.Beat(phase, detail, running):
                return WorkerBeat(slot, incarnation, phase, detail, running)
            case wire.Ready(lanes, models):
                return WorkerReady(slot, incarnation, lanes, models)
            case wire.Remark():
                self.remarks.hear((slot, incarnation), message)
                return None
            case wire.Done(batch, frames, failures, run_s, fetch_s) if lane is not None:
                outcomes = tuple(_outcomes(message.outcomes, envelope.payload))
                if frames.count(0) != len(failures):
                    raise BadFrame(f"{len(failures)} failures for {frames.count(0)} parts that failed")
                if not (0.0 <= run_s < math.inf and 0.0 <= fetch_s < math.inf):
                    raise BadFrame(f"a run of {run_s} s and {fetch_s} s more")
                self._handouts.ended((slot, incarnation), batch)
                return BatchDone(slot, incarnation, lane, batch, outcomes, run_s=run_s, fetch_s=fetch_s)
        raise BadFrame(f"{type(message).__name__} is not a message that this peer may send")

    def _hello(self, route: bytes, hello: wire.Hello) -> Event | None:
        secret = self._secrets.get((hello.slot, hello.incarnation))
        if secret is None or not hmac.compare_digest(secret, hello.secret):
            raise BadFrame(f"HELLO of slot {hello.slot} incarnation {hello.incarnation} without its secret")
        peer = (hello.slot, hello.incarnation, hello.lane)
        if peer in self._routes:
            raise BadFrame(f"a second HELLO of lane {hello.lane}")
        self._peers[route] = peer
        self._routes[peer] = route
        if hello.lane is None:
            return WorkerHello(hello.slot, hello.incarnation)
        self._send(peer, encode(wire.WelcomeLane(), self._instance))
        return None

    def _tell_dropped(self, peer: Peer | None, why: str) -> None:
        slot, incarnation = (None, None) if peer is None else peer[:2]
        who = "an unknown peer" if peer is None else f"slot {slot} incarnation {incarnation}"
        extra = about("worker_message_dropped", slot=slot, incarnation=incarnation, reason=why)
        log.warning("dropped a message from %s: %s", who, why, extra=extra)

    # --- out ----------------------------------------------------------------------------------------------------

    def welcome(self, slot: int, incarnation: int, welcome: wire.Welcome) -> bool:
        return self._send((slot, incarnation, None), encode(welcome, self._instance))

    def take_seat(self, slot: int, incarnation: int, welcome: wire.Welcome) -> bool:
        return self._send((slot, incarnation, None), encode(wire.TakeSeat(welcome), self._instance))

    def stop(self, slot: int, incarnation: int) -> bool:
        return self._send((slot, incarnation, None), encode(wire.Stop(), self._instance))

    def end_sessions(self, slot: int, incarnation: int, owner: int) -> bool:
        return self._send((slot, incarnation, None), encode(wire.EndSessions(owner), self._instance))

    def run(self, action: RunBatch) -> bool:
        """False: the lane cannot be reached, which only a dying worker's lane cannot."""
        parts: list[Inputs] = [part.payload for part in action.parts]  # type: ignore[misc]  # as `Front` gave them
        rows = () if parts[0].rows is None else tuple(part.stop - part.start for part in action.parts)
        buffers: list[bytes | memoryview | zmq.Frame | LentBuffer] = []
        for inputs, part in zip(parts, action.parts, strict=True):
            buffers += inputs.cut(part.start, part.stop)
        seat = action.slot, action.incarnation
        lent, rooms = self._handouts.begun(seat, action.batch, action.parts, buffers)
        run = wire.Run(
            action.batch,
            action.model,
            action.signature,
            action.outputs,
            rows,
            action.pad_to,
            action.by_rows,
            lent,
            rooms,
            action.stride,
            action.owner,
        )
        # `begun` has left no LentBuffer among them.
        frames: list[Any] = [*encode(run, self._instance), parts[0].table, *buffers]
        sent = self._send((*seat, action.lane), frames)
        if not sent:
            self._handouts.ended(seat, action.batch)
        return sent

    def _send(self, peer: Peer, frames: "Sequence[bytes | memoryview | zmq.Frame]") -> bool:
        """Never blocks: a lane's credit is one batch, so a pipe that is full belongs to a worker that does not read."""
        route = self._routes.get(peer)
        if route is None:
            return False
        try:
            send_frames(self.socket, [route, *frames])
        except zmq.ZMQError as error:
            if error.errno not in (zmq.EHOSTUNREACH, zmq.EAGAIN):
                raise
            return False
        return True


def _outcomes(outcomes: Iterable[wire.PartOutcome], payload: Sequence[zmq.Frame]) -> Iterator[Outcome]:
    position = 0
    for outcome in outcomes:
        match outcome:
            case wire.PartFailed(fault, text):
                yield Failed(fault, text)
            case wire.PartSpoiled(fault, text):
                yield Spoiled(fault, text)
            case wire.RowsDiffer(text):
                yield RowsChanged(text)
            case wire.PartDone(frames):
                end = position + frames
                if frames < 1 or end > len(payload):
                    raise BadFrame(f"a part's answer has {frames} frames of {len(payload) - position}")
                yield Succeeded(payload[position:end])
                position = end
    if position != len(payload):
        raise BadFrame(f"{len(payload) - position} frames belong to no part")

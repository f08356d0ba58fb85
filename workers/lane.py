"""A lane: one thread that receives a batch, runs it and answers it. No job changes threads.

    RUN ─► Call and tensors of each part ─► resolve ─► Model.run ─► tensors ─► DONE

A part that fails fails alone: its outcome is its own, whatever happens to its neighbours.
"""

import logging
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence

import zmq

from pool.wire.calls import CALL_BYTES, Call, Table
from pool.wire.codec import pack, unpack
from pool.wire.faults import Fault
from pool.wire.frames import BadFrame, Envelope
from pool.wire.signatures import Refused
from pool.wire.tensors import decode_tensor, encode_tensor
from pool.wire.worker_messages import Done, PartDone, PartFailed, Run, WelcomeLane
from workers.backend import Model
from workers.connection import Connection
from workers.environment import Seat
from workers.progress import Progress
from workers.signatures import resolve

__all__ = ["Lane"]

log = logging.getLogger("workers.lane")

TEXT_CHARS = 2000
IDLE_POLL_S = 0.2  # how soon a lane without work notices that the worker stops

Buffers = list["bytes | memoryview"]


class Lane:
    def __init__(
        self,
        number: int,
        context: "zmq.Context[zmq.Socket[bytes]]",
        seat: Seat,
        secret: bytes,
        models: Mapping[str, Model],
        progress: Progress,
    ) -> None:
        self.welcomed = threading.Event()
        self.failure: BaseException | None = None
        self._number = number
        self._models = models
        self._progress = progress
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._main, args=(context, seat, secret), name=f"lane-{number}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The lane finishes and answers what it runs, then ends."""
        self._stopping.set()

    def join(self) -> None:
        """Waits for the lane's end; the pool kills a worker that takes too long over it."""
        self._thread.join()

    def alive(self) -> bool:
        return self._thread.is_alive()

    def _main(self, context: "zmq.Context[zmq.Socket[bytes]]", seat: Seat, secret: bytes) -> None:
        try:
            connection = Connection(context, seat, self._number, secret)
            try:
                first = connection.receive_first().message
                if not isinstance(first, WelcomeLane):
                    raise BadFrame(f"{type(first).__name__} instead of WELCOME_LANE")
                self.welcomed.set()
                while not self._stopping.is_set():
                    if connection.wait(IDLE_POLL_S):
                        self._serve(connection)
            finally:
                connection.close()
        except BaseException as error:
            # The worker's main thread watches: a worker with a dead lane must not look healthy.
            traceback.print_exc()
            self.failure = error

    def _serve(self, connection: Connection) -> None:
        envelope = connection.receive()
        run = envelope.message
        if not isinstance(run, Run):
            raise BadFrame(f"a lane got {type(run).__name__}")
        self._progress.begin(self._number, run.batch)
        outcomes: list[PartDone | PartFailed] = []
        buffers: Buffers = []
        for frames in _parts(run, envelope):
            outcome, answer = self._part(run.model, frames)
            outcomes.append(outcome)
            buffers += answer
        # Before the answer leaves: with it the pool counts the lane as idle again.
        self._progress.end(self._number)
        connection.send(Done(run.batch, tuple(outcomes)), buffers)

    def _part(self, model: str, frames: Sequence[zmq.Frame]) -> tuple[PartDone | PartFailed, Buffers]:
        try:
            answer = self._answer(self._models[model], frames)
        except Refused as error:
            return PartFailed(error.fault, str(error)), []
        except BadFrame as error:
            return PartFailed(Fault.INVALID_INPUT, f"the job cannot be read: {error}"), []
        except Exception as error:  # a fault of ours: the job hears of it, the lane goes on
            log.exception("a job of model %s failed in the worker", model)
            text = f"in the worker: {type(error).__name__}: {error}"[:TEXT_CHARS]
            return PartFailed(Fault.MODEL_FAILED, text.encode(errors="replace").decode()), []
        return PartDone(len(answer)), answer

    def _answer(self, model: Model, frames: Sequence[zmq.Frame]) -> Buffers:
        call = unpack(Call, frames[0].buffer, CALL_BYTES)
        if len(call.tensors) != len(frames) - 1:
            raise BadFrame(f"{len(frames) - 1} buffers for {len(call.tensors)} tensors")
        arrays = [decode_tensor(header, frame.buffer) for header, frame in zip(call.tensors, frames[1:], strict=True)]
        invocation = resolve(model.info, call, arrays)
        fetched = model.run(invocation.signature, invocation.feeds, invocation.outputs)
        encoded = [encode_tensor(name, fetched[name]) for name in invocation.outputs]
        table = Table(tuple(header for header, _ in encoded))
        return [pack(table), *(buffer for _, buffer in encoded)]


def _parts(run: Run, envelope: Envelope[zmq.Frame]) -> Iterator[Sequence[zmq.Frame]]:
    position = 0
    for count in run.parts:
        if count < 1:
            raise BadFrame("a part without frames")
        yield envelope.payload[position : position + count]
        position += count
    if position != len(envelope.payload):
        raise BadFrame(f"{len(envelope.payload)} payload frames, {position} in parts")

"""A lane: one thread that receives a batch, runs it and answers it. No job changes threads."""

import logging
import threading
import time
import traceback

import zmq

from pool.wire.exits import Exit
from pool.wire.frames import BadFrame
from pool.wire.worker_messages import Run, WelcomeLane, done
from workers.backend import ProcessUnusable
from workers.connection import Connection
from workers.environment import Seat
from workers.leaving import leave
from workers.memory import BatchMemory
from workers.progress import Progress
from workers.runner import Runner

__all__ = ["Lane"]

log = logging.getLogger("workers.lane")

IDLE_POLL_S = 0.2  # how soon a lane without work notices that the worker stops


class Lane:
    def __init__(
        self,
        number: int,
        context: "zmq.Context[zmq.Socket[bytes]]",
        seat: Seat,
        secret: bytes,
        runner: Runner,
        progress: Progress,
        spin_s: float,
    ) -> None:
        self.welcomed = threading.Event()
        self.failure: BaseException | None = None
        self._number = number
        self._runner = runner
        self._progress = progress
        self._spin_s = spin_s
        self._memory = BatchMemory()
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
            connection = Connection(context, seat, self._number, secret, self._spin_s)
            try:
                first = connection.receive_first().message
                if not isinstance(first, WelcomeLane):
                    raise BadFrame(f"{type(first).__name__} instead of WELCOME_LANE")
                self.welcomed.set()
                while not self._stopping.is_set():
                    if connection.wait(IDLE_POLL_S):
                        self._serve(connection)
                    else:
                        self._runner.tend(time.monotonic())
                    self._memory.trim(time.monotonic())
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
        try:
            finished = self._runner.run(run, [frame.buffer for frame in envelope.payload], self._memory)
        except ProcessUnusable as error:
            log.error("this process is of no more use: model %s: %s", run.model, error)
            leave(Exit.PROCESS_UNUSABLE)
        # Before the answer leaves: with it the pool counts the lane as idle again.
        self._progress.end(self._number)
        times = finished.ended - finished.began, time.monotonic() - finished.ended
        connection.send(done(run.batch, finished.outcomes, *times), finished.payload)

"""A lane: one thread that receives a batch, runs it and answers it. No job changes threads."""

import logging
import threading
import time
import traceback

import zmq

from pool.wire.exits import Exit
from pool.wire.frames import BadFrame
from pool.wire.worker_messages import Done, Run, WelcomeLane, done
from workers.backend import ProcessUnusable
from workers.connection import Connection
from workers.environment import Seat
from workers.independence.checks import IDLE_S, PATIENCE, Checks
from workers.independence.known import Known
from workers.independence.samples import Sampler
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
        known: Known,
    ) -> None:
        self.welcomed = threading.Event()
        self.failure: BaseException | None = None
        self._number = number
        self._runner = runner
        self._progress = progress
        self._spin_s = spin_s
        self._memory = BatchMemory()
        self._known = known
        self._sampler = Sampler(known)
        self._stopping = False
        self._thread = threading.Thread(target=self._main, args=(context, seat, secret), name=f"lane-{number}")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """The lane finishes and answers what it runs, then ends."""
        self._stopping = True

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
                checks = Checks(self._sampler, self._runner.run_rows, connection.send, self._known.marks, self._number)
                passed = 0  # batches since the lane's memory was looked at
                while not self._stopping:
                    overdue = checks.waits and checks.overdue
                    if not overdue and self._serve(connection, checks):
                        passed += 1
                    else:
                        self._tend(checks)
                        passed = PATIENCE
                    if passed >= PATIENCE:
                        self._memory.trim(time.monotonic())
                        passed = 0
            finally:
                connection.close()
        except BaseException as error:
            # The worker's main thread watches: a worker with a dead lane must not look healthy.
            traceback.print_exc()
            self.failure = error

    def _tend(self, checks: Checks) -> None:
        self._runner.tend(time.monotonic())
        try:
            checks.step()
        except ProcessUnusable as error:
            log.error("this process is of no more use: rows of a job in other company: %s", error)
            leave(Exit.PROCESS_UNUSABLE)

    def _serve(self, connection: Connection, checks: Checks) -> bool:
        """Whether a batch came."""
        envelope = connection.receive(IDLE_S if checks.waits else IDLE_POLL_S)
        if envelope is None:
            return False
        run = envelope.message
        if type(run) is not Run:
            raise BadFrame(f"a lane got {type(run).__name__}")
        self._progress.running[self._number] = run.batch, time.monotonic()
        try:
            finished = self._runner.run(run, envelope.payload, self._memory, self._sampler)
        except ProcessUnusable as error:
            log.error("this process is of no more use: model %s: %s", run.model, error)
            leave(Exit.PROCESS_UNUSABLE)
        # Before the answer leaves: with it the pool counts the lane as idle again.
        self._progress.running[self._number] = None
        run_s, fetch_s = finished.ended - finished.began, time.monotonic() - finished.ended
        if finished.failures:
            answer = done(run.batch, finished.outcomes, run_s, fetch_s)
        else:
            answer = Done(run.batch, finished.frames, (), run_s, fetch_s)
        connection.send(answer, finished.payload)
        if checks.waits or finished.sample is not None:
            checks.served(finished.sample, self._known.most_rows(run.model))
        return True

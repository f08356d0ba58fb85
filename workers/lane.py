"""A lane: one thread that receives a batch, runs it and answers it. No job changes threads.

    the frame of a RUN ─► the call that its number stands for ─► `Runner.run` ─► the frame of its DONE

When it is idle, it looks after sessions and compares rows of jobs that it ran.
"""

import logging
import threading
import time
import traceback
from functools import partial
from typing import Any

import zmq

from pool.wire.batches import said_once
from pool.wire.exits import Exit
from pool.wire.frames import BadFrame
from pool.wire.worker_messages import Done, Run, WelcomeLane
from workers.backend import ProcessUnusable
from workers.connection import Connection
from workers.environment import Assignment
from workers.independence import IDLE_S, PATIENCE, Checks, Known, Sampler
from workers.leaving import leave
from workers.memory import BatchMemory
from workers.progress import Progress
from workers.runner import Runner

__all__ = ["Lane", "LaneCalls"]

log = logging.getLogger("workers.lane")

IDLE_POLL_S = 0.2  # how soon a lane without work notices that the worker stops


class LaneCalls:
    """What a lane knows of its calls. The pool numbers them, and reuses a number for another call.

    Bounded, because a RUN with an invalid number is refused when it is read.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, str | None, tuple[str, ...] | None, Any]] = {}

    def complete(self, run: Run, payload: list[Any]) -> None:
        """Keeps the call that a RUN registers. Fills what later RUNs leave out: names, and the table in the payload.

        The rest of the payload are views of the memory that it came in. Raises `BadFrame` for a call that was never
        registered, which no pool sends.
        """
        payload[1:] = [memoryview(each) for each in payload[1:]]
        if run.registers:
            self._known[run.call] = run.model, run.signature, run.outputs, payload[0]
            return
        known = self._known.get(run.call)
        if known is None:
            raise BadFrame(f"a batch of call {run.call}, which was not registered")
        model, signature, outputs, payload[0] = known
        run.known(model, signature, outputs)


class Lane(threading.Thread):
    """Started by the worker's main thread. `failure`: what ended it before the order to stop."""

    def __init__(
        self,
        number: int,
        context: "zmq.Context[zmq.Socket[bytes]]",
        assignment: Assignment,
        secret: bytes,
        runner: Runner,
        progress: Progress,
        spin_s: float,
        known: Known,
    ) -> None:
        super().__init__(name=f"lane-{number}")
        self.welcomed = threading.Event()
        self.failure: BaseException | None = None
        self._number = number
        self._runner = runner
        self._progress = progress
        self._memory = BatchMemory()
        self._known = known
        self._sampler = Sampler(known)
        self._stopping = False
        self._calls = LaneCalls()
        self._connect = partial(Connection, context, assignment, number, secret, spin_s)

    def stop(self) -> None:
        """The lane finishes and answers what it runs, then ends."""
        self._stopping = True

    def run(self) -> None:
        try:
            connection = self._connect()  # in its own thread
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
            log.error("worker unusable, the pool replaces it: comparing the rows of a job: %s", error)
            leave(Exit.PROCESS_UNUSABLE)

    def _serve(self, connection: Connection, checks: Checks) -> bool:
        """Whether a batch came."""
        envelope = connection.receive(IDLE_S if checks.waits else IDLE_POLL_S)
        if envelope is None:
            return False
        run = envelope.message
        if type(run) is not Run:
            raise BadFrame(f"a lane got {type(run).__name__}")
        self._calls.complete(run, envelope.payload)
        self._progress.running[self._number] = run.batch, time.monotonic()
        try:
            finished = self._runner.run(run, envelope.payload, self._memory, self._sampler)
        except ProcessUnusable as error:
            log.error("worker unusable, the pool replaces it: model %s: %s", run.model, error)
            leave(Exit.PROCESS_UNUSABLE)
        # Before the answer leaves: with it the pool counts the lane as idle again.
        self._progress.running[self._number] = None
        run_s, fetch_s = finished.ended - finished.began, time.monotonic() - finished.ended
        failures = said_once(finished.failures) if finished.failures else ()
        answer = Done(run.batch, finished.frames, failures, run_s, fetch_s)
        connection.send(answer, finished.payload)
        if checks.waits or finished.sample is not None:
            checks.served(finished.sample, self._known.most_rows(run.model))
        return True

"""Who submits: this process, or several clients, each a process of its own; what those tell is counted here."""

import time
from array import array
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from queue import Empty
from typing import Any

from pool import Client
from pool.bench.child import END_S, Child, Told
from pool.bench.job import BenchJob
from pool.bench.load import NO_WARMUP, Load
from pool.bench.loop import GRACE_S, LOOK_S, run_loop
from pool.bench.meter import Meter, Show
from pool.bench.point import INTERRUPTED, Answer, NotMeasured, Point

__all__ = ["Fleet"]

START_S = 30.0  # until all of them are connected
BEGIN_S = 0.1  # from the order to the first job, so that all begin at once
LAG_S = 0.25  # by how much what they tell may be late


class Fleet(ExitStack):
    """Waits until its processes are connected; the end of the block ends them. Raises `NotMeasured`.

    One client is this process: nothing is started for it.
    """

    def __init__(self, client: Client, clients: int, endpoint: str | None, job: BenchJob) -> None:
        self._client = client
        self._job = job
        self._told: Told = Told()
        self._children: list[Child] = []
        super().__init__()
        with ExitStack() as unless_connected:
            unless_connected.push(self)
            for number in range(clients if clients > 1 else 0):
                child = Child(["pool.bench.sender"], self._told, number)
                self._children.append(self.enter_context(child))
                child.tell({"endpoint": endpoint, **job.packed()})
            deadline = time.monotonic() + START_S
            for _ in self._children:
                self._await_ready(deadline)
            unless_connected.pop_all()

    def run(self, load: Load, show: Show) -> Point:
        """After an open loop the pool is empty when it returns."""
        if self._children:
            meter = Meter(load, show, LAG_S)
            self._run(load, meter)
        else:
            meter = Meter(load, show)
            run_loop(self._job.submitter(self._client, load.timeout_s), load, meter)
        return meter.point

    def _run(self, load: Load, meter: Meter) -> None:
        # The parent alone knows when it is enough; they go on until they are told, or have nothing left.
        whole = replace(load, duration_s=load.longest_s + LAG_S, warmup=NO_WARMUP, jobs=None)
        begin = time.perf_counter() + BEGIN_S
        ended: list[float] = []
        try:
            for number, (child, share) in enumerate(
                zip(self._children, whole.shares(len(self._children)), strict=True)
            ):
                child.tell({"load": {**asdict(share), "warmup": None}, "begin": begin, "first": number})
            meter.begin(begin)
            while meter.look(time.perf_counter()):
                self._hear(meter, ended)
        except KeyboardInterrupt:
            meter.early = INTERRUPTED
        stopped = time.perf_counter()
        end_s = END_S + ((load.timeout_s or 0.0) + GRACE_S if load.is_open else 0.0)
        with suppress(KeyboardInterrupt):  # a second Ctrl-C waits no longer
            for child in self._children:
                child.tell({"stop": True})
            deadline = stopped + (LAG_S if meter.early else end_s)
            while len(ended) < len(self._children) and time.perf_counter() < deadline:
                self._hear(meter, ended)
                meter.look(time.perf_counter())
        if len(ended) < len(self._children) and not meter.early:
            meter.early = "a client did not end in time"
        meter.end(stopped, max(ended, default=0.0))

    def _hear(self, meter: Meter, ended: list[float]) -> None:
        try:
            number, message = self._told.get(timeout=LOOK_S)
        except Empty:
            return
        if message is None or "failed" in message:
            meter.early = meter.early or self._failure(number, message)
            ended.append(0.0)
        elif "ended" in message:
            ended.append(message["ended"])
        else:
            sent = array("d", message["sent"])
            for due, at in zip(sent[::2], sent[1::2], strict=True):
                meter.sent(due, at)
            for answer in message["answers"]:
                meter.answered(Answer(*answer))

    def _await_ready(self, deadline: float) -> None:
        try:
            number, message = self._told.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise NotMeasured(f"{len(self._children)} clients were not connected within {START_S:g} s") from None
        if message is None or "failed" in message:
            raise NotMeasured(self._failure(number, message))

    def _failure(self, number: int, message: dict[str, Any] | None) -> str:
        if message is not None:
            return str(message["failed"])
        how, last = self._children[number].death()
        return f"client {number} of {len(self._children)} died ({how}){last and f': {last}'}"

"""One event at a time: what arises while an event's actions are done waits until they all are."""

import gc
import os
import random
import tempfile
import time
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import zmq

from pool.config import parse_settings
from pool.core import actions as do
from pool.core import events as told
from pool.core.jobs import Batch, Job
from pool.core.machine import Machine
from pool.core.orders import Orders
from pool.core.policy import Policy, SlotPlan
from pool.core.queue import Backlog
from pool.plan.planning import make_plan
from pool.serve.back import Back, CannotSay
from pool.serve.calls import inputs_of
from pool.serve.clients import Client
from pool.serve.handouts import Handouts
from pool.serve.layouts import read
from pool.serve.loop import CoreFault, Way
from pool.serve.rows import Inputs
from pool.serve.service import Service
from pool.serve.shared_memory import SharedMemory
from pool.systemd.notify import Notifier
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.client_messages import CLIENT_MESSAGES, Opened
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.frames import decode
from pool.wire.lent import Lent
from pool.wire.segment import MemoryRequest
from simulation.driver import PartToRun, RunBatch
from simulation.plans import model_info
from support.asked import OWNER, Asked, framed
from support.heard import batch_of

CLIENT = b"client"
TABLE = pack(Table((TensorHeader("x", "float32", (16,), False),)))
ROWS_TABLE = pack(Table((TensorHeader("x", "float32", (ROWS,), False),)))
LONE = Asked(1, "m")
MORE = 0, False, 1, 0, None  # what is said of a job after its payload


def asked_of(job: int, rows: int | None, timeout_s: float, size_bytes: int) -> tuple[object, ...]:
    """What is said of a job before its payload."""
    return CLIENT, job, "m", None, None, rows, timeout_s, 0, None, size_bytes, b"form"


class House:
    """The core and the books of lent memory, and lanes that cannot be reached; each attempt to reach one takes 10 s."""

    def __init__(self, back: Back, shared_memory: SharedMemory) -> None:
        self.now = 100.0
        self.released: list[int] = []
        self.answers: dict[int, do.JobFailed | None] = {}
        self.machine = Machine(Policy(), [SlotPlan(("m",))], random.Random(0))
        self._shared_memory = shared_memory
        self._client = Client(CLIENT, (0, b""), Opened("test", 1 << 20, 60.0))
        self.feed = Way(self.machine, lambda *_: None, lambda _: None, self._act, self._unsent, lambda: self.now)
        self.feed.back, self.feed.front = back, Mute()  # type: ignore[assignment]

    def submit(self, asked: Asked) -> None:
        frames = [zmq.Frame(each) for each in framed(asked, b"instance", [TABLE, b"" if asked.lent else bytes(64)])]
        envelope = decode(CLIENT_MESSAGES, frames)
        submit, buffers = envelope.message, envelope.payload
        call = self._client.calls.of(submit, OWNER)
        assert call is not None
        released = self.released
        inputs = inputs_of(
            CLIENT, submit, call, buffers, frames, self._shared_memory, lambda _, job: released.append(job)
        )
        self._client.owed[submit.job] = inputs.regions
        self.feed.arrived(asked_of(submit.job, None, submit.timeout_s, 64), inputs, MORE, self.now)
        self.feed.dispatch()

    def _unsent(self, batch: Batch) -> None:
        self.now += 10.0
        self.feed(told.BatchUnsent(batch.slot, batch.incarnation, batch.number))

    def _act(self, order: do.Action) -> None:
        if isinstance(order, do.FailJob):
            self.answers[order.job] = order.failed
            self._client.settle(order.job)


@pytest.fixture
def house() -> Iterator[House]:
    shared_memory = SharedMemory(1 << 20, 1 << 20)
    handouts = Handouts(lambda *_: False, lambda *_: True)
    with tempfile.TemporaryDirectory(prefix="pf-") as folder, zmq.Context() as context:
        back = Back(context, Path(folder, "back.sock"), b"instance", handouts, lambda *_: None)
        house = House(back, shared_memory)
        segment = shared_memory.lend(CLIENT, MemoryRequest(4096, 4096))
        assert segment is not None
        house.feed(told.Start())
        house.feed(told.WorkerSpawned(0, 1, 4711))
        house.submit(LONE)
        house.submit(replace(LONE, job=2, timeout_s=5.0, lent=(Lent(0, segment.number, 0, 64),)))
        house.feed(told.WorkerHello(0, 1))
        yield house
        back.close()
        shared_memory.close()


def test_a_lent_job_whose_deadline_comes_while_another_lane_is_tried(house: House) -> None:
    """Both leave in one turn. By the time that the first is known not to have, the second is past its deadline."""
    house.feed(told.WorkerReady(0, 1, 2, (model_info("m", batchable=False),)))
    house.machine.validate()
    assert house.released == [2], "once, when nobody uses its memory any more"
    failed = house.answers[2]
    assert isinstance(failed, do.JobFailed)
    assert failed.fault is Fault.DEADLINE_EXCEEDED


class Processes:
    """In the place of the supervisor: workers are there at once."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, list[int | None]]] = []
        self.machine: Machine | None = None

    def spawn(self, action: do.SpawnWorker) -> told.Event:
        assert self.machine is not None
        self.seen.append((action.slot, [slot.worker.pid for slot in self.machine.fleet.slots]))
        return told.WorkerSpawned(action.slot, action.incarnation, 4711)

    def is_lost(self, _: int) -> bool:
        return False

    def device_wait(self, *_: int) -> None:
        """No GPU."""


class Mute:
    """In the place of both sockets: nobody is there, and no run with job 13 in it can be put into bytes."""

    def __init__(self) -> None:
        self.runs: list[int] = []
        self.answers: dict[int, do.JobFailed | None] = {}
        self.payloads: dict[int, tuple[Any, ...]] = {}

    def welcome(self, *_: object) -> bool:
        return True

    def run(self, batch: Batch) -> bool:
        self.runs.append(len(batch.parts))
        asked = [part.job.payload.asked[0] for part in batch.parts]  # type: ignore[attr-defined]
        if "13" in asked:
            raise CannotSay("the run cannot be written")
        return True

    def done(self, job: Job, payloads: tuple[Any, ...]) -> None:
        self.answers[job.number] = None
        self.payloads[job.number] = payloads

    def failed(self, _: bytes, job: int, failed: do.JobFailed, __: Path | None) -> None:
        self.answers[job] = failed

    def answered(self) -> None:
        """Nobody is."""


def service_of(models: str, devices: list[str]) -> tuple[Service, Processes, Mute]:
    raw = {
        "pool": {"endpoint": "ipc:///nowhere", "devices": devices, "lanes": 1},
        "model": [{"name": "m", "path": models, "devices": "all", "batching": "always", "max_batch": 4}],
    }
    plan = make_plan(parse_settings(raw, "a test", Path("/")), os.environ)
    service, processes, mute = Service(plan, os.environ, lambda *_: None, Notifier.of_nobody()), Processes(), Mute()
    processes.machine = service._machine
    service._supervisor, service._front, service._back = processes, mute, mute  # type: ignore[assignment]
    service._tell.front = service._tell.back = mute  # type: ignore[assignment]
    return service, processes, mute


def test_the_service_does_all_of_one_event_before_the_next() -> None:
    service, processes, _ = service_of("stub:echo", ["cpu", "cpu"])
    service._feed(told.Start())
    assert processes.seen == [(0, [None, None]), (1, [None, None])], "of neither the core had heard at the second"
    assert [slot.worker.pid for slot in service._machine.fleet.slots] == [4711, 4711]


def test_of_a_run_that_cannot_be_written_the_guilty_job_alone_fails() -> None:
    """Jobs that wait for the first lane leave it as one run, and then as ever smaller ones."""
    service, _, mute = service_of("stub:rows", ["cpu"])
    service._feed(told.Start())
    for job in (11, 12, 13, 14):
        inputs = Inputs(TABLE, [zmq.Frame(bytes(4))], None, 1, (str(job), None, None, None))
        service._tell.arrived(asked_of(job, 1, 60.0, 4), inputs, MORE, time.monotonic())
    service._feed(told.WorkerHello(0, 1))
    service._feed(told.WorkerReady(0, 1, 1, (model_info("m"),)))
    machine = service._machine
    while batches := machine.fleet.slots[0].batches:
        (batch,) = batches.values()
        service._tell.batch_done((0, 1, batch.lane, batch.number), [()] * len(batch.parts), {}, 0.0, 0.0)
        service._tell.dispatch()
    machine.validate()
    assert mute.runs[0] == 4
    assert sorted(mute.answers) == [11, 12, 13, 14]
    failed = mute.answers.pop(13)
    assert isinstance(failed, do.JobFailed)
    assert (failed.fault, failed.text) == (Fault.INVALID_INPUT, "the run cannot be written")
    assert set(mute.answers.values()) == {None}, "the others are done"


class Frame(bytearray):
    """Bytes that can be seen to be gone."""

    __slots__ = ("__weakref__",)


def test_an_answer_that_waits_for_the_rest_of_its_job_keeps_no_frame_with_those_of_others() -> None:
    """A job of six rows is cut: four of them run first."""
    service, _, mute = service_of("stub:rows", ["cpu"])
    service._feed(told.Start())
    inputs = Inputs(ROWS_TABLE, [zmq.Frame(bytes(24))], read(ROWS_TABLE), 6, ("m", None, None, None))
    service._tell.arrived(asked_of(1, 6, 60.0, 24), inputs, MORE, time.monotonic())
    service._feed(told.WorkerHello(0, 1))
    service._feed(told.WorkerReady(0, 1, 1, (model_info("m"),)))
    slot = service._machine.fleet.slots[0]
    seen, large = [], zmq.Frame(b"large")
    while slot.batches:
        (batch,) = slot.batches.values()
        frame = Frame(b"%d and what others have" % batch.rows)
        seen.append(weakref.ref(frame))
        service._tell.batch_done((0, 1, 0, batch.number), [[memoryview(frame)[:1], large]], {}, 0.0, 0.0)
        service._tell.dispatch()
        del frame
        if len(seen) == 1:
            assert not mute.payloads, "two rows are missing"
            gc.collect()
            assert seen[0]() is None
    first, second = mute.payloads[1]
    assert [bytes(first[0]), bytes(second[0])] == [b"4", b"2"]
    assert first[1] is second[1] is large, "and what has a frame of its own is not copied"


class Listener:
    """In the place of the core: it remembers what it was told, in its order, and wants two things done at the start."""

    def __init__(self) -> None:
        self.heard: list[object] = []
        self.orders = Orders()
        self.backlog = Backlog((), Policy())

    def handle(self, event: told.Event, _: float) -> None:
        self.heard.append(event)
        if isinstance(event, told.Start):
            self.orders.append(do.Notice("a"))
            self.orders.append(do.Notice("b"))

    def arrived(self, _: bytes, job: int, *__: object) -> None:
        self.heard.append(f"job {job}")

    def batch_done(self, _: int, __: int, ___: int, batch: int, *____: object) -> None:
        self.heard.append(f"batch {batch}")

    def dispatch(self, _: float) -> bool:
        self.heard.append("dispatch")
        return False


def feed_of(*, act: Any = None) -> tuple[Way, list[object]]:
    core = Listener()
    feed = Way(core, lambda *_: None, lambda _: None, act or (lambda _: None), lambda _: None)
    feed.front = feed.back = Mute()  # type: ignore[assignment]
    return feed, core.heard


def test_what_arises_is_handled_in_its_order_before_the_feed_returns() -> None:
    def act(action: do.Action) -> None:
        assert isinstance(action, do.Notice)
        feed(told.WorkerHello(0, ord(action.text)))
        feed(told.ClientGone(action.text.encode()))

    feed, heard = feed_of(act=act)
    feed(told.Start())
    events = [
        told.Start(),
        *(each for it in "ab" for each in (told.WorkerHello(0, ord(it)), told.ClientGone(it.encode()))),
    ]
    assert heard == [each for event in events for each in (event, "dispatch")]


def test_of_a_burst_all_is_told_before_one_dispatch() -> None:
    feed, heard = feed_of()
    for job in (1, 2):
        feed.arrived(asked_of(job, 1, 60.0, 1), None, MORE, 0.0)
    feed.batch_done((0, 1, 0, 7), (), {}, 0.0, 0.0)
    assert heard == ["job 1", "job 2", "batch 7"]
    feed.dispatch()
    feed.dispatch()
    assert heard[3:] == ["dispatch"], "nothing was told since"


def test_a_run_that_cannot_be_written_is_told_when_all_orders_are_done() -> None:
    """As if the worker had said so; the core must not change while what it wants is done."""

    inputs = Inputs(TABLE, [], None, None, ("13", None, None, None))
    unsayable = batch_of(RunBatch(0, 1, 0, 1, "m", None, None, (PartToRun(inputs, 0, 0),), 0, False))

    class Core(Listener):
        def dispatch(self, now: float) -> bool:
            super().dispatch(now)
            if len(self.heard) == len(("start", "dispatch")):
                self.orders.gives.append(do.Notice("a"))
                self.orders.batches += [unsayable, unsayable]
            return False

    core, runs = Core(), []
    feed = Way(core, lambda *_: None, lambda _: runs.append(list(core.heard)), lambda _: None, lambda _: None)
    feed.front = feed.back = Mute()  # type: ignore[assignment]
    feed(told.Start())
    assert runs == [[told.Start(), "dispatch"]] * 2
    assert core.heard[2:] == ["batch 1", "dispatch", "batch 1", "dispatch"]
    feed.dispatch()
    assert len(core.heard) == 6, "nothing was told since"


def test_after_a_fault_the_core_hears_of_nothing_any_more() -> None:
    def act(_: do.Action) -> None:
        raise ValueError("out of range")

    feed, heard = feed_of(act=act)
    with pytest.raises(CoreFault, match="Notice after Start: ValueError: out of range"):
        feed(told.Start())
    feed(told.Tick())
    feed.arrived(asked_of(1, 1, 60.0, 1), None, MORE, 0.0)
    feed.batch_done((0, 1, 0, 7), (), {}, 0.0, 0.0)
    feed.dispatch()
    assert heard == [told.Start(), "dispatch"]


class Unanswering(Mute):
    """It fails when all is to leave."""

    def answered(self) -> None:
        raise KeyError(7)


def test_a_fault_is_nothing_that_contains_exceptions_of_one_peer() -> None:
    feed, _ = feed_of()
    feed.front = Unanswering()  # type: ignore[assignment]
    feed._core.orders.answers.append((SimpleNamespace(number=1), ()))  # type: ignore[arg-type]

    def contained() -> None:
        try:
            feed(told.Tick())
        except Exception:
            pytest.fail("it was contained")

    with pytest.raises(CoreFault, match="the answers after Tick: KeyError: 7"):
        contained()

"""Whatever well-formed messages a client sends, whatever their fields say: nothing raises, and the core stays whole.

Real sockets, the real front, desk, books of memory and core; workers are played. What the pool says is decoded again.
"""

import random
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from pool.clock.alarms import Alarms
from pool.core import actions as do
from pool.core import events as told
from pool.core.jobs import Batch
from pool.core.machine import Machine
from pool.core.policy import ModelPolicy, Policy, SlotPlan
from pool.core.versions import Versions
from pool.devices import Device
from pool.plan.requests import Answer, request_of
from pool.recorder import Recorder, Shelf
from pool.recorder.fault_report import fault_report, replay, summary
from pool.serve.admin import Admin
from pool.serve.back import Back
from pool.serve.front import Front
from pool.serve.handouts import Handouts
from pool.serve.loop import Way
from pool.serve.shared_memory import SharedMemory
from pool.wire import client_messages as wire
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, decode, encode
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.message import Message
from pool.wire.segment import MemoryRequest
from pool.wire.signatures import Refused
from pool.wire.worker_messages import WORKER_MESSAGES, Run
from simulation.plans import model_info
from support.asked import Asked, framed
from support.processes import eventually

INSTANCE = b"instance"
SEGMENT_BYTES = 1 << 20
LANES = 2
SEED = b"a test"
ONE_ROW = pack(Table((TensorHeader("x", "float32", (ROWS,), False),)))
WHOLE = pack(Table((TensorHeader("x", "float32", (2,), False),)))
POLICY = Policy(
    max_jobs=200,
    models={"m": ModelPolicy(max_batch=4), "waits": ModelPolicy(max_batch=4, batch_wait_s=0.5)},
    versions={"v": Versions((1, 3), {"stable": 1})},
)
PLAN = SlotPlan(("m", "waits", "state", "v@1", "v@3"), "cpu:0", frozenset({"cpu", "cpu:0", "slot:0"}))
INFOS = (
    model_info("m"),
    model_info("waits"),
    model_info("state", stateful=True),
    *(replace(model_info(f"v@{number}"), version=number) for number in (1, 3)),
)

EXTREME = (
    -(1 << 63),
    -1,
    0,
    (1 << 31) - 1,
    1 << 31,
    (1 << 63) - 2,
    (1 << 63) - 1,
    1 << 63,
    (1 << 64) - 2,
    (1 << 64) - 1,
)
small = st.integers(0, 6)
numbers = st.one_of(small, small, small, st.sampled_from(EXTREME), st.integers(-(1 << 63), (1 << 64) - 1))
unsigned = numbers.map(lambda number: number % (1 << 64))
short = numbers.map(lambda number: number % (1 << 32))
floats = st.one_of(st.sampled_from((0.0, 0.4, 30.0, 1e8, -0.0, 5e-324)), st.floats())
texts = st.one_of(
    st.text(max_size=20), st.sampled_from(("\0", "𝄞" * 400, "x" * 1001, "{0}", "%s", "slot:0", "@", "m@1"))
)
models = st.one_of(st.sampled_from(("m", "m", "m", "waits", "state", "v")), texts)
signatures = st.one_of(
    st.sampled_from(
        (None, None, "serving_default", "Session.run", "Session.run, which writes", "Session.open, private")
    ),
    texts,
)
outputs = st.one_of(
    st.sampled_from((None, None, (), ("y",), ("y", "y"), ("ab",) * 21_000, tuple(map(str, range(2048))))),
    st.lists(texts, max_size=4).map(tuple),
)
rooms = st.builds(AnswerSpace, short, unsigned, st.one_of(unsigned, st.just(128)))
lents = st.lists(st.builds(Lent, small, small, unsigned, st.one_of(unsigned, st.just(8))), max_size=3).map(tuple)


@st.composite
def submits(draw: st.DrawFn) -> list[bytes]:
    """A job that may well be taken in, with a few of its fields drawn from all that can travel."""
    weight = draw(st.sampled_from((1, 1, 2, 5)))
    submit = Asked(
        draw(small),
        "m",
        None,
        None,
        weight if weight > 1 else draw(st.sampled_from((None, 1, 2))),
        30.0,
        0,
        None,
        0,
        False,
        weight=weight,
        origin=draw(small),
    )
    fields = {
        "job": unsigned,
        "model": models,
        "signature": signatures,
        "outputs": outputs,
        "rows": st.one_of(st.none(), unsigned),
        "timeout_s": st.one_of(st.none(), floats),
        "priority": st.integers(-128, 127),
        "device": st.one_of(st.none(), st.sampled_from(("cpu", "cpu:0", "slot:0", "slot:1")), texts),
        "attempts": unsigned,
        "in_doubt": st.booleans(),
        "lent": lents,
        "space": st.one_of(st.none(), rooms, st.just(AnswerSpace(1, 4096, 128))),
        "weight": st.integers(0, (1 << 16) - 1),
        "origin": unsigned,
        "version": st.one_of(st.none(), numbers, texts, st.just("stable")),
    }
    for name in draw(st.lists(st.sampled_from(sorted(fields)), max_size=3, unique=True)):
        changed: dict[str, Any] = {name: draw(fields[name])}
        submit = replace(submit, **changed)
    rows = submit.rows
    table, size = (WHOLE, 8) if rows is None else (ONE_ROW, 4 * rows if 0 <= rows < 2000 else 4)
    frames = [table, b"" if submit.lent else bytes(size)]
    if draw(st.integers(0, 9)) == 0:
        frames = draw(st.lists(st.sampled_from((table, b"", b"\xc1", bytes(size))), max_size=4))
    if draw(st.integers(0, 3)) == 0:  # of a call that is known, or is not
        known = submit.submit(frames[0] if frames else b"", draw(small), draw(st.booleans()))
        return encode(known, INSTANCE, frames[1:])
    return framed(submit, INSTANCE, frames)


questions: st.SearchStrategy[wire.Ask] = st.one_of(
    st.builds(wire.Ask, numbers, texts, texts),
    st.builds(
        wire.Ask,
        numbers,
        st.sampled_from(("status", "models", "explain", "restart", "drain", "reload", "load", "unload", "logs")),
        st.one_of(
            texts,
            numbers.map(str),
            st.sampled_from(
                (
                    "",
                    "slot:0",
                    "slot:9",
                    "slot:٣",
                    "0 rolling",
                    "[" * 30_000,
                    '["a", "b\\ud800"]',
                    '{"a": 1}',
                    "1" * 5000,
                )
            ),
        ),
    ),
)
plain: st.SearchStrategy[Message] = st.sampled_from((wire.Ping(), wire.Open("again"), wire.Pong()))
messages: st.SearchStrategy[Any] = st.one_of(
    submits(),
    submits(),
    submits(),
    st.builds(wire.Cancel, numbers, st.booleans()).map(lambda message: encode(message, INSTANCE)),
    st.builds(wire.Forget, numbers).map(lambda message: encode(message, INSTANCE)),
    questions.map(lambda message: encode(message, INSTANCE)),
    plain.map(lambda message: encode(message, INSTANCE)),
)
OUTCOMES = ("done", "done", "done", "failed", "spoiled", "rows", "memory", "died")
steps = st.one_of(messages, messages, st.sampled_from(OUTCOMES), st.sampled_from((0.1, 1.0, 40.0)))


class Everywhere(dict[Any, bytes]):
    """The routes of peers that are all there."""

    def get(self, _: object, __: object = None) -> bytes:
        return b"route"


class Reached(Back):
    """Every lane is there, and hears what it is told."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._routes = Everywhere()

    def _send_to(self, _: bytes, frames: Sequence[Any]) -> bool:
        envelope = decode(WORKER_MESSAGES, frames)
        message = envelope.message
        if isinstance(message, Run):
            assert envelope.payload, "its table"
            assert all(lent.size_bytes <= SEGMENT_BYTES for lent in message.lent)
        return True


class House:
    """A pool but for its processes and its loop."""

    def __init__(self, context: "zmq.Context[zmq.Socket[bytes]]", folder: Path) -> None:
        self.now = 1000.0
        self.running: list[Batch] = []
        self.shared_memory = SharedMemory(SEGMENT_BYTES, SEGMENT_BYTES)
        handouts = Handouts(lambda *_: True, lambda *_: True)
        self.machine = Machine(POLICY, [PLAN], random.Random(SEED))
        self.feed = Way(self.machine, self._prepare, self.running.append, self._act, self._unsent, lambda: self.now)
        self.back = Reached(context, folder / "back", INSTANCE, handouts, lambda *_: None)
        self.alarms = Alarms(lambda: self.now)
        turn = self.alarms.alarm(self._turn)
        credit = wire.Opened("0", 1 << 24, 60.0)
        self.front = Front(context, credit, INSTANCE, 100, self.shared_memory, turn)
        self.feed.front, self.feed.back = self.front, self.back
        self.front.bind_local(folder / "front")
        self.handouts = handouts
        recorder = Recorder(self.machine.fleet, ["cpu:0"], Shelf(None, 0, 0, "here"), {})
        devices = [Device("cpu", (), "cpu:0", "cpu", None)]
        self.desk = Admin(
            self.machine,
            devices,
            lambda _: [],
            self.front,
            recorder,
            self.feed,
            lambda: {"failover": {"away": [], "stays": []}, "unloadable": []},
            self._reload,
            lambda _: [],
        )
        self.dealer = context.socket(zmq.DEALER)
        self.dealer.linger = 0
        self.dealer.connect(f"ipc://{folder}/front")
        self.feed(told.Start())
        self.say(encode(wire.Open("a test"), NO_INSTANCE))
        (client,) = self.front._clients.present()
        assert self.shared_memory.lend(client.name, MemoryRequest(SEGMENT_BYTES, SEGMENT_BYTES)) is not None

    def close(self) -> None:
        self.dealer.close()
        self.front.close()
        self.back.close()

    def say(self, frames: list[bytes]) -> None:
        """As the loop does when something came."""
        self.dealer.send_multipart(frames)
        assert self.front.endpoints[0].socket.poll(5000)
        self.hear()

    def hear(self) -> None:
        """A turn."""
        self.feed.hear_clients(0)
        self.feed.dispatch()
        self._tend()

    def turned(self) -> "House":
        """After one more turn."""
        self.hear()
        return self

    def end_one(self, how: str) -> None:
        """Something becomes of the batch that has run for longest."""
        if not self.running:
            return
        run = self.running[0]
        if how == "died":
            self.feed(told.WorkerExited(0, run.incarnation, told.Death("SIGSEGV", restartable=True)))
            self.pass_time(0.2)
            return
        self.running.pop(0)
        self.handouts.ended((0, run.incarnation), run.number)
        failure: told.Failure | None = {
            "done": None,
            "failed": told.Failed(Fault.MODEL_FAILED, "{0} %s \0 𝄞"),
            "spoiled": told.Spoiled(Fault.MODEL_FAILED, "somebody's"),
            "rows": told.RowsChanged("other rows"),
            "memory": told.Spoiled(Fault.OUT_OF_MEMORY, "too many"),
        }[how]
        payloads = [[zmq.Frame(b"table"), zmq.Frame(b"x")] for _ in run.parts]
        failures = {} if failure is None else dict.fromkeys(range(len(payloads)), failure)
        self.feed.batch_done((0, run.incarnation, run.lane, run.number), payloads, failures, 0.001, 0.001)
        self.feed.dispatch()
        self._tend()

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.machine.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.feed(told.Tick())
        self.now = end
        self._tend()

    def _turn(self) -> None:
        if (question := self.front.next_question()) is not None:
            self.desk.answer(question)
        for heard in self.front.tend(self.now):
            if isinstance(heard, tuple):
                self.feed.arrived(*heard, self.now)
            else:
                self.feed(heard)
        self.feed.dispatch()

    def _tend(self) -> None:
        self.alarms.call_due()
        self.machine.validate()
        while self.dealer.poll(0):
            frames = self.dealer.recv_multipart()
            decode(wire.CLIENT_MESSAGES, frames)
        failed = [reason for reason in self.front.refused if "the pool failed" in reason]
        assert not failed, "contained, and yet a mistake of the pool's"

    def _reload(self, what: str, about: str, answer: Answer) -> None:
        try:
            request_of(what, about)
        except ValueError as error:
            answer(Refused(str(error)))
        else:
            answer({"changes": [], "slots": []})

    def _prepare(self, event: told.Event, _: float) -> None:
        if isinstance(event, told.WorkerExited):
            self.running.clear()
            self.handouts.exited((event.slot, event.incarnation))

    def _unsent(self, batch: Batch) -> None:
        raise AssertionError(batch)

    def _act(self, action: do.Action) -> None:
        match action:
            case do.FailJob(client, job, failed):
                self.front.failed(client, job, failed)
            case do.UnpackChunk():
                self.front.unpacked(action)
            case do.SpawnWorker(slot, incarnation):
                self.feed(told.WorkerSpawned(slot, incarnation, 4711))
                self.feed(told.WorkerHello(slot, incarnation))
            case do.WelcomeWorker(slot, incarnation):
                self.feed(told.WorkerReady(slot, incarnation, LANES, INFOS))
            case do.KillWorker(slot, incarnation):
                self.feed(told.WorkerExited(slot, incarnation, told.Death("SIGKILL", restartable=True)))
            case do.StopWorker(slot, incarnation):
                self.feed(told.WorkerExited(slot, incarnation, told.Death("exit status 0", restartable=True)))
            case do.KeepJob(payload=inputs):
                self.front.quarantined(inputs, self.now)  # type: ignore[arg-type]  # as the front gave it to the core


@pytest.fixture(scope="module")
def context() -> "Iterator[zmq.Context[zmq.Socket[bytes]]]":
    with zmq.Context() as context:
        yield context


def lone(**fields: object) -> list[bytes]:
    submit = Asked(1, "m", None, None, 2, 5.0, 0, None, 0, False)
    return framed(replace(submit, **fields), INSTANCE, [ONE_ROW, bytes(8)])  # type: ignore[arg-type]


@settings(deadline=None, max_examples=250, suppress_health_check=list(HealthCheck))
@given(plan=st.lists(steps, min_size=5, max_size=40))
@example([lone(job=(1 << 64) - 1, weight=2), "failed", 40.0])
@example([lone(job=(1 << 63) - 1, weight=2), "failed", "died", "done", 40.0])
@example([lone(outputs=("ab",) * 21_000), lone(timeout_s=1e8), "died", "died", "died", 40.0])
@example([lone(weight=2), encode(wire.Cancel(1, member=True), INSTANCE), "failed", lone(job=2, origin=1), "done"])
@example([lone(), encode(wire.Cancel(1, member=True), INSTANCE), 40.0])
def test_nothing_that_is_well_formed_raises(
    context: "zmq.Context[zmq.Socket[bytes]]", plan: list[list[bytes] | str | float]
) -> None:
    with tempfile.TemporaryDirectory(prefix="pb-") as folder:
        house = House(context, Path(folder))
        try:
            for step in plan:
                if isinstance(step, list):
                    house.say(step)
                elif isinstance(step, str):
                    house.end_one(step)
                else:
                    house.pass_time(step)
            house.pass_time(1e9)
            assert not house.machine.backlog.jobs, "each is answered at its deadline at the latest"
            assert not any(client.owed for client in house.front._clients.named.values()), "nor is one still owed"
            again = fault_report(
                Exception("none"), house.feed.last, house.machine, (POLICY, [PLAN]), SEED, {"pool": "a test"}
            )
            assert again["left_out"] or summary(replay(again)) == again["state"], "the core was told nothing else"
        finally:
            house.close()


def test_a_client_that_goes_with_its_question_leaves_nothing(tmp_path: Path) -> None:
    """SUBMIT and CLOSE are read in one burst: the refusal follows when the client is forgotten already."""
    with zmq.Context() as context:
        house = House(context, tmp_path)
        try:
            for number in range(3):
                dealer = context.socket(zmq.DEALER)
                dealer.linger = 1000
                dealer.connect(f"ipc://{tmp_path}/front")
                dealer.send_multipart(encode(wire.Open("brief"), NO_INSTANCE))
                dealer.send_multipart(framed(Asked(1, "nosuch", rows=1), INSTANCE, [ONE_ROW, bytes(4)]))
                dealer.send_multipart(encode(wire.Close(), INSTANCE))
                refused = house.machine.answered.total()
                eventually(lambda: house.turned().machine.answered.total() > refused)  # noqa: B023
                eventually(lambda: len(house.turned().front._clients.present()) == 1)
                dealer.close()
                assert list(house.front._pipes._unmarked) == [
                    client.name for client in house.front._clients.present()
                ], number
        finally:
            house.close()

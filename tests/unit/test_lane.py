"""A lane's thread over real sockets: what it answers, when it looks after itself, and what ends it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import zmq

from pool.wire.calls import Table
from pool.wire.codec import pack
from pool.wire.frames import BadFrame, decode, encode
from pool.wire.independence import Batching, RowsCompared
from pool.wire.message import Message
from pool.wire.packing import unpack_answer
from pool.wire.tensors import Array
from pool.wire.worker_messages import (
    WORKER_MESSAGES,
    Done,
    Failed,
    Hello,
    ModelSettings,
    Run,
    Stop,
    WelcomeLane,
)
from support.outcomes import outcomes_of
from unit.batch_runs import Model, floats, frames_of, served
from workers.environment import Assignment
from workers.independence.checks import PATIENCE
from workers.independence.known import Known
from workers.lane import Lane
from workers.memory import BatchMemory
from workers.progress import Progress
from workers.runner import Runner
from workers.sessions import Sessions
from workers.shared_memory import SharedMemory

INSTANCE = b"instance"
WAIT_MS = 20_000


class Pool:
    """The pool's side of one lane, in the lane's process: what is sent is there at once.

    `idle`: the lane had nothing to do. A run waits for `go`, and says that it has `entered`.
    """

    def __init__(self, state: Path, spin_s: float = 0.0, batching: Batching = Batching.OFF) -> None:
        self.idle, self.entered, self.go = threading.Event(), threading.Event(), threading.Event()
        self.go.set()
        self.ran = 0
        self.progress = Progress()
        self.model = Model(self._doubled)
        self._context = zmq.Context()
        self.router = self._context.socket(zmq.ROUTER)
        self.router.linger = 0
        endpoint = "inproc://workers"
        self.router.bind(endpoint)
        cache = str(state / "cache")
        known = Known([ModelSettings("m", "stub:m", True, batch_sizes=(8,), cache=cache, batching=batching)])
        runner = Runner(served(self.model), SharedMemory(), Idle(served(self.model), self.idle))
        assignment = Assignment(endpoint, 0, 1, 0, 0, "")
        self.lane = Lane(0, self._context, assignment, b"s" * 32, runner, self.progress, spin_s, known)
        self.lane.start()
        self._route, hello = self.hear()
        assert isinstance(hello, Hello)
        self.say(WelcomeLane())

    def _doubled(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self.ran += 1
        self.entered.set()
        assert self.go.wait(WAIT_MS / 1000)
        return {"y": feeds["x"] * 2}

    def hear(self) -> tuple[bytes, Message]:
        """The next message of the lane, with who sent it; `payload` has its own."""
        assert self.router.poll(WAIT_MS), "the lane says nothing"
        route, *frames = self.router.recv_multipart()
        envelope = decode(WORKER_MESSAGES, frames)
        self.payload = envelope.payload
        return route, envelope.message

    def say(self, message: Message, *payload: bytes) -> None:
        self.send(*encode(message, INSTANCE, payload))

    def send(self, *frames: bytes) -> None:
        self.router.send_multipart([self._route, *frames])

    def run(self, batch: int, value: float) -> None:
        headers, buffers = frames_of({"x": floats([value, -value])})
        self.say(Run(batch, "m", None, None, (1,), 1, False), pack(Table(tuple(headers))), *buffers)

    def answer(self, batch: int) -> list[list[float]]:
        _, done = self.hear()
        assert isinstance(done, Done)
        assert (done.batch, done.frames, done.failures) == (batch, (1,), ())
        assert done.run_s >= 0 <= done.fetch_s
        found: list[list[float]] = unpack_answer(self.payload)["y"].tolist()
        return found

    def close(self) -> None:
        self.lane.stop()
        self.lane.join()
        self._context.destroy(linger=0)


class Idle(Sessions):
    """Tells of the turns in which a lane had nothing to do."""

    def __init__(self, models: Mapping[str, Model], idle: threading.Event) -> None:
        super().__init__(models, lambda name: models[name])  # type: ignore[arg-type, return-value]
        self._idle = idle

    def tend(self, now: float) -> None:
        super().tend(now)
        self._idle.set()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Pool]]:
    started: list[Pool] = []

    def start(**options: Any) -> Pool:
        started.append(Pool(tmp_path, **options))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.mark.parametrize("spin_s", [0.0, 0.002])
def test_it_answers_one_batch_after_another_and_rests_in_between(start: Callable[..., Pool], spin_s: float) -> None:
    pool = start(spin_s=spin_s)
    for batch in range(1, 4):
        pool.idle.clear()
        assert pool.idle.wait(WAIT_MS / 1000), "without work it looks after what is left behind"
        pool.run(batch, batch)
        assert pool.answer(batch) == [[2 * batch, -2 * batch]]
        assert pool.progress.running == {0: None}


def test_a_part_that_fails_is_told_and_the_next_batch_is_served(start: Callable[..., Pool]) -> None:
    pool = start()
    pool.say(Run(1, "other", None, None, (1,), 1, False), b"", b"")
    _, done = pool.hear()
    assert isinstance(done, Done)
    (outcome,) = outcomes_of(done)
    assert isinstance(outcome, Failed)
    assert not pool.payload
    pool.run(2, 1)
    assert pool.answer(2) == [[2, -2]]


def test_a_lane_that_is_never_idle_gives_memory_back_all_the_same(
    start: Callable[..., Pool], monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = start()
    memory, trimmed = pool.lane._memory, list[int]()

    def trim(now: float) -> None:
        trimmed.append(pool.ran)
        BatchMemory.trim(memory, now)

    assert pool.idle.wait(WAIT_MS / 1000)
    pool.go.clear()
    pool.run(0, 1)
    assert pool.entered.wait(WAIT_MS / 1000)
    monkeypatch.setattr(memory, "trim", trim)
    for batch in range(1, 2 * PATIENCE + 1):
        pool.run(batch, 1)
    pool.go.set()
    for batch in range(2 * PATIENCE + 1):
        pool.answer(batch)
    assert trimmed[:2] == [PATIENCE, 2 * PATIENCE]


def test_rows_are_compared_though_the_lane_is_never_idle(start: Callable[..., Pool]) -> None:
    pool = start(batching=Batching.AUTO)
    pool.go.clear()
    for batch in range(2 * PATIENCE):
        pool.run(batch, batch + 1)
    pool.go.set()
    told: list[type[Message]] = []
    while RowsCompared not in told:
        told.append(type(pool.hear()[1]))
    assert told == [Done] * (1 + PATIENCE) + [RowsCompared], "the first is sampled, the others have patience"


def test_rows_are_compared_when_nothing_comes(start: Callable[..., Pool]) -> None:
    pool = start(batching=Batching.AUTO)
    pool.run(1, 1)
    assert pool.answer(1)
    _, compared = pool.hear()
    assert isinstance(compared, RowsCompared)
    assert (compared.signature, compared.differs) == ("s", "")


@pytest.mark.parametrize(
    "frames",
    [
        [b"TFWP"],
        [b"junk", b"junk"],
        encode(Stop(), INSTANCE),
        [encode(Stop(), INSTANCE)[0][:4] + b"\1" + bytes(9), b""],
    ],
    ids=["one frame", "no message", "another kind", "another version"],
)
def test_what_is_no_batch_ends_it_and_the_worker_sees_that(start: Callable[..., Pool], frames: list[bytes]) -> None:
    pool = start()
    pool.run(1, 1)
    assert pool.answer(1), "it serves"
    pool.send(*frames)
    pool.lane.join()
    assert isinstance(pool.lane.failure, BadFrame)


def test_it_stops_when_it_is_asked_to_and_answers_what_it_runs_first(start: Callable[..., Pool]) -> None:
    pool = start()
    pool.go.clear()
    pool.run(1, 1)
    assert pool.entered.wait(WAIT_MS / 1000)
    running = pool.progress.running[0]
    assert running is not None
    assert running[0] == 1
    pool.lane.stop()
    pool.go.set()
    assert pool.answer(1) == [[2, -2]]
    pool.lane.join()
    assert pool.lane.failure is None

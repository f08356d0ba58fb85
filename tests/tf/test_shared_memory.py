"""With TensorFlow itself: what lies in a segment is fed where it is, stays as it is, and answers are each one's own."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.packing import unpack_answer
from pool.wire.segment import Grant, attach, create, send_grant
from pool.wire.worker_messages import Run
from support.feeds import counting, feeds
from support.outcomes import PartDone, outcomes_of
from support.pool_process import PoolProcess, pool_process, stub_config
from tf.held_lanes import HeldLanes
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.shared_memory import SharedMemory

pytestmark = [pytest.mark.tensorflow, pytest.mark.memory]

WIDTH = 1 << 16  # floats of a row
MIB = 1 << 20
SEGMENT = 64 * MIB
NUMBER = 3


@pytest.fixture(scope="module")
def shapes(models: Path) -> Path:
    class Shapes(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], name="x")])
        def relu(self, x):
            return {"y": tf.nn.relu(x)}  # which TensorFlow may compute in the buffer of its input

        @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], name="x")])
        def chain(self, x):
            return {"y": tf.nn.relu(-x) + 1.0}

        @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], name="x")])
        def views(self, x):
            return {"same": tf.identity(x), "square": tf.reshape(x, [-1, 256, 256])}

        @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], name="x")])
        def ranked(self, x):
            return {"same": tf.identity(x), "best": tf.math.top_k(x, 3).indices}

    module = Shapes()
    folder = models / "shapes"
    tf.saved_model.save(
        module, str(folder), signatures={name: getattr(module, name) for name in ("relu", "chain", "views", "ranked")}
    )
    return folder


@pytest.fixture
def segment() -> Iterator[tuple[memoryview, SharedMemory]]:
    """Its memory as the client sees it, and what the worker has of it."""
    fd = create(SEGMENT)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        shared_memory = SharedMemory()
        send_grant(ours, Grant(NUMBER, SEGMENT), fd)
        shared_memory.receive(theirs)
        yield memoryview(attach(fd, SEGMENT)), shared_memory
    os.close(fd)


def message(signature: str, parts: int, *, room: bool = False) -> Run:
    """Parts of two rows, at 4, 8, 12 … MiB, with room from 32 MiB on."""
    lent = tuple(Lent(index, NUMBER, (4 + 4 * index) * MIB, 8 * WIDTH) for index in range(parts))
    rooms = tuple(AnswerSpace(NUMBER, (32 + 4 * index) * MIB, 4 * MIB) for index in range(parts)) if room else ()
    return Run(1, "m", signature, None, (2,) * parts, 2 * parts, True, lent, rooms)


def frames(parts: int) -> list[bytes]:
    return [pack(Table((TensorHeader("x", "float32", (ROWS, WIDTH), False),))), *[b""] * parts]


def put(memory: memoryview, index: int) -> np.ndarray:
    values = np.random.default_rng(index).standard_normal((2, WIDTH)).astype(np.float32)
    begin = (4 + 4 * index) * MIB
    memory[begin : begin + values.nbytes] = memoryview(values).cast("B")
    return values


def answers(finished, memory: memoryview) -> list[dict[str, np.ndarray]]:
    payload = iter(finished.payload)
    found = []
    for outcome in outcomes_of(finished):
        assert isinstance(outcome, PartDone), outcome
        own = [next(payload) for _ in range(outcome.frames)]
        found.append(unpack_answer(own, lambda offset, size: memory[offset : offset + size]))
    return found


@pytest.mark.parametrize(("signature", "adopted"), [("views", True), ("ranked", False)])
def test_a_lone_part_is_taken_where_it_lies(load, shapes, segment, signature, adopted) -> None:
    """The output of `identity` is at the very address in the segment, unless what was fed is a copy."""
    memory, shared_memory = segment
    model = load(shapes)
    mapped = np.frombuffer(shared_memory.memory(NUMBER, 0, SEGMENT), np.uint8)
    seen = []

    class Watched:
        info = model.info
        bears_change = model.bears_change

        def run(self, signature, feeds, outputs):
            fetched = model.run(signature, feeds, outputs)
            seen.append(bool(np.may_share_memory(fetched["same"], mapped)))
            if adopted:
                assert fetched["same"].ctypes.data - mapped.ctypes.data == 4 * MIB
            return fetched

    values = put(memory, 0)
    finished = Runner({"m": Watched()}, shared_memory).run(message(signature, 1), frames(1), BatchMemory())
    assert seen == [adopted]
    memory[4 * MIB : 4 * MIB + values.nbytes] = bytes(values.nbytes)  # its client uses that for something else
    (answer,) = answers(finished, memory)
    np.testing.assert_array_equal(answer["same"], values)
    if adopted:
        np.testing.assert_array_equal(answer["square"], values.reshape(-1, 256, 256))
    else:
        np.testing.assert_array_equal(answer["best"], np.argsort(-values, 1)[:, :3])


@pytest.mark.parametrize(
    ("begin", "order", "pad_to", "address"),
    [
        (4 * MIB, (0, 1, 2), 6, 4 * MIB),
        (4 * MIB, (1, 2), 4, 4 * MIB + 8 * WIDTH),
        (4 * MIB, (0, 1, 2), 8, None),
        (4 * MIB, (1, 0, 2), 6, None),
        (4 * MIB + 20, (0, 1, 2), 6, None),
    ],
)
def test_parts_side_by_side_are_taken_where_they_lie(load, shapes, segment, begin, order, pad_to, address) -> None:
    """The output of `identity` is at the address of the first, and of nobody's but theirs; else it is in a copy."""
    memory, shared_memory = segment
    model = load(shapes)
    mapped = np.frombuffer(shared_memory.memory(NUMBER, 0, SEGMENT), np.uint8)
    seen = []

    class Watched:
        info = model.info
        bears_change = model.bears_change

        def run(self, signature, feeds, outputs):
            fetched = model.run(signature, feeds, outputs)
            same = fetched["same"]
            seen.append(same.ctypes.data - mapped.ctypes.data if np.may_share_memory(same, mapped) else None)
            assert len(same) == pad_to
            return fetched

    memory[:] = b"\x7f" * SEGMENT
    given = [np.random.default_rng(number).standard_normal((2, WIDTH)).astype(np.float32) for number in range(3)]
    for number, values in enumerate(given):
        memory[begin + number * values.nbytes :][: values.nbytes] = memoryview(values).cast("B")
    before = bytes(memory)
    lent = tuple(Lent(index, NUMBER, begin + 8 * WIDTH * number, 8 * WIDTH) for index, number in enumerate(order))
    run = Run(1, "m", "views", None, (2,) * len(order), pad_to, True, lent, ())
    runner, lane = Runner({"m": Watched()}, shared_memory), BatchMemory()
    for _ in range(2):
        finished = runner.run(run, frames(len(order)), lane)
        assert bytes(memory) == before
        memory[:] = bytes(SEGMENT)  # the client uses it for something else before the answers leave
        for number, answer in zip(order, answers(finished, memory), strict=True):
            np.testing.assert_array_equal(answer["same"], given[number])
            np.testing.assert_array_equal(answer["square"], given[number].reshape(-1, 256, 256))
        memory[:] = before
    assert seen == [address] * 2


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("room", [False, True])
@pytest.mark.parametrize("signature", ["relu", "chain", "views"])
def test_inputs_stay_as_they_are_for_the_job_may_run_again(load, shapes, segment, signature, room, parts) -> None:
    memory, shared_memory = segment
    given = [put(memory, index) for index in range(parts)]
    runner, lane = Runner({"m": load(shapes)}, shared_memory), BatchMemory()
    for _ in range(3):
        finished = runner.run(message(signature, parts, room=room), frames(parts), lane)
        for index, (values, answer) in enumerate(zip(given, answers(finished, memory), strict=True)):
            if signature == "views":
                np.testing.assert_array_equal(answer["same"], values)
                np.testing.assert_array_equal(answer["square"], values.reshape(-1, 256, 256))
            else:
                expected = np.maximum(values, 0) if signature == "relu" else np.maximum(-values, 0) + 1
                np.testing.assert_array_equal(answer["y"], expected)
            begin = (4 + 4 * index) * MIB
            assert memory[begin : begin + values.nbytes] == memoryview(values).cast("B")


@pytest.fixture(scope="module")
def counts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("feeds")


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> HeldLanes:
    return HeldLanes(tmp_path_factory.mktemp("lanes"), slots=(0, 0))


@pytest.fixture(scope="module")
def pool(shapes: Path, counts: Path, lanes: HeldLanes) -> Iterator[PoolProcess]:
    named = f'name = "shapes"\npath = "{shapes}"\nmax_batch = 8'
    padded = f'name = "padded"\npath = "{shapes}"\nmax_batch = 8\nallowed_batch_sizes = [8]'
    models = "".join([f'[[model]]\n{model}\nbatching = "always"\ndevices = "all"\n' for model in (named, padded)])
    config = stub_config("lanes = 2", models=models + lanes.config, devices='["cpu"]')
    with pool_process(config, counting(counts)) as running:
        yield running


@pytest.mark.parametrize(
    ("model", "signature", "dtype", "viewed"),
    [
        ("shapes", "views", "float32", True),
        ("shapes", "chain", "float32", True),
        ("shapes", "ranked", "float32", False),  # which does not bear change
        ("shapes", "views", "uint8", False),  # which is cast
        ("padded", "views", "float32", None),  # but for those that are full
    ],
)
def test_jobs_in_shared_batches_are_one_view_and_each_gets_its_own(
    pool: PoolProcess, lanes: HeldLanes, counts: Path, model: str, signature: str, dtype: str, viewed: bool | None
) -> None:
    """Some are cancelled, and the memory of those that are answered is another's at once."""
    with pool.client() as client:
        client.run(model, {"x": np.zeros((1, WIDTH), dtype)}, signature=signature, timeout=90)
        before, rows = feeds(counts), set()
        for turn in range(4):
            given = [np.full((1, WIDTH), 41 * turn + number, dtype) for number in range(41)]
            with lanes.held(client, jobs=len(given)):
                futures = [client.submit(model, {"x": array}, signature=signature, timeout=90) for array in given]
            for future in futures[::7]:  # some may run by now
                future.cancel()
            for array, future in zip(given, futures, strict=True):
                if future.cancelled():
                    continue
                answer = future.result()
                rows.add(future.timeline.batch_rows)
                value = float(array[0, 0])
                for name, found in answer.items():
                    assert (found == (np.arange(3) if name == "best" else 1 if name == "y" else value)).all(), name
        found = feeds(counts).since(before)
        assert max(rows) == 8
        assert viewed is None or (found.views > 0) == viewed, found
        assert viewed or found.copies or dtype == "uint8", "what is cast lies in no shared memory any more"


def test_two_clients_in_shared_batches_each_get_their_own(pool: PoolProcess, lanes: HeldLanes) -> None:
    with pool.client() as one, pool.client() as other:
        clients = one, other
        for client in clients:
            client.run("shapes", np.zeros((1, WIDTH), np.float32), signature="relu")
        batches = set()
        for turn in range(4):
            work = []
            with lanes.held(one, jobs=24):
                for number in range(24):
                    client, signature = clients[number % 2], ("relu", "views")[number // 2 % 2]
                    value = (100 * turn + number) * (-1) ** (number // 4)
                    array = client.empty((1 + number % 2, WIDTH))
                    array[:] = value
                    work.append((value, array, client.submit("shapes", {"x": array}, signature=signature, timeout=90)))
            for value, array, future in work:
                answer = future.result()
                batches.add((future.timeline.batch_rows, len(array)))
                for name, found in answer.items():
                    assert (found == (max(value, 0) if name == "y" else value)).all(), (value, name)
                assert (array == value).all(), "the input is as it was"
        assert any(rows > own for rows, own in batches), "some ran together"

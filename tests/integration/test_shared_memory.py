"""Large tensors through real pools: right answers, no copy where none is promised, and nothing left behind."""

import contextlib
import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client import shared_memory as client_memory
from pool.wire.lent import LENT_BYTES
from support.at_line import AtLine, interrupt
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually, freeze, pid_of

pytestmark = pytest.mark.memory

MODELS = """
[[model]]
name = "echo"
path = "stub:echo"
devices = "all"
[[model]]
name = "rows"
path = "stub:rows"
batching = "always"
devices = "all"
max_batch = 65536
[[model]]
name = "cut"
path = "stub:rows?run_ms=1"
batching = "always"
devices = "all"
max_batch = 20000
[[model]]
name = "slow"
path = "stub:rows?run_ms=100"
batching = "always"
devices = "all"
max_batch = 65536
"""
CONFIG = stub_config(models=MODELS, rest="[queue]\nmax_attempts = 4\n[restart]\nbackoff_max = '1s'")
COUNT = LENT_BYTES  # floats: four times what is lent


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(CONFIG) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        client.run("echo", 1.0)
        yield client


@pytest.fixture
def own_pool() -> Iterator[PoolProcess]:
    """One that a test may treat badly."""
    with pool_process(CONFIG) as running:
        yield running


def lent_bytes(client: Client) -> int:
    return int(client.status().lent_bytes)


def memory_files(pid: int) -> int:
    """How many segments a process has mapped."""
    text = Path(f"/proc/{pid}/maps").read_text()
    return len(set(re.findall(r"^.* (\d+) +/memfd:tf-worker-pool", text, re.MULTILINE)))


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def doubled(client: Client, array: "np.ndarray[Any, Any]", model: str = "rows", **options: Any) -> "Future[Any]":
    return client.submit(model, {"x": array}, signature="double", outputs=["y"], timeout=90, **options)


def floats(client: Client, value: float, count: int = COUNT) -> "np.ndarray[Any, Any]":
    array = client.empty(count)
    array[:] = value
    return array


SPECIMENS: "dict[str, np.ndarray[Any, Any]]" = {
    "float32": np.arange(COUNT, dtype=np.float32),
    "strided": np.arange(3 * COUNT, dtype=np.float32)[::-3],
    "transposed": np.arange(COUNT, dtype=np.float32).reshape(256, -1).T,
    "big-endian": np.arange(COUNT, dtype=">f4"),
    "empty": np.zeros((0, COUNT), np.float32),
    "0-d": np.array(7, np.float32),
    "int64": np.arange(COUNT),
    "bool": np.arange(COUNT) % 3 == 0,
    "complex128": np.arange(COUNT) * 1j,
    "string": np.array([b"x" * COUNT, b"", b"a\0", b"y" * COUNT], object),
}


@pytest.mark.parametrize("kind", SPECIMENS)
def test_every_kind_of_input_comes_back_as_it_went(client: Client, kind: str) -> None:
    given = SPECIMENS[kind]
    signature = kind if kind in ("int64", "bool", "complex128", "string") else "float32"
    for _ in range(3):  # from the second answer on there is room for it
        found = client.run("echo", given, signature=signature)["x"]
        np.testing.assert_array_equal(found, given)
        assert found.flags.writeable


@pytest.mark.parametrize("size_bytes", [LENT_BYTES - 4, LENT_BYTES, LENT_BYTES + 4, 1 << 20, (1 << 20) + 4])
def test_sizes_around_the_bound_are_answered_right(client: Client, size_bytes: int) -> None:
    array = np.arange(size_bytes // 4, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(doubled(client, array).result()["y"], 2 * array)
        np.testing.assert_array_equal(doubled(client, array, model="cut").result()["y"], 2 * array)


def test_python_values_are_cast_in_the_worker(client: Client) -> None:
    assert client.run("echo", [1] * COUNT)["x"].tolist() == [1.0] * COUNT


def test_views_of_what_was_fed_are_each_ones_own(client: Client) -> None:
    """Joined in the memory of a lane, which the next batch uses again."""
    arrays = [floats(client, number) for number in range(12)]
    futures = [client.submit("rows", {"x": array}, signature="view", timeout=90) for array in arrays for _ in range(3)]
    for number, future in enumerate(futures):
        assert np.unique(future.result()["same"]).tolist() == [number // 3]
        assert np.unique(future.result()["column"]).tolist() == [number // 3]


def test_an_empty_array_is_read_where_it_lies_and_others_are_copied(pool: PoolProcess, client: Client) -> None:
    with_copy, without = np.ones(COUNT, np.float32), floats(client, 1)
    workers = pool.workers()
    try:
        for worker in workers:  # nobody reads anything before it is changed
            freeze(worker)
        futures = doubled(client, with_copy, "slow"), doubled(client, without, "slow")
        with_copy[:], without[:] = 5, 5
    finally:
        for worker in workers:
            os.kill(worker, signal.SIGCONT)
    assert np.unique(futures[0].result()["y"]).tolist() == [2]
    assert np.unique(futures[1].result()["y"]).tolist() == [10], "its caller was told not to"


def test_a_result_is_the_callers_to_change_and_to_submit(client: Client) -> None:
    first = [client.run("echo", np.full(COUNT, 3, np.float32))["x"] for _ in range(3)][-1]
    futures = [doubled(client, first, "slow") for _ in range(4)]
    first += 1
    for future in futures:
        assert np.unique(future.result()["y"]).tolist() == [6]


def test_results_stay_when_others_come(client: Client) -> None:
    kept = [client.run("echo", np.full(COUNT, number, np.float32))["x"] for number in range(40)]
    slices = [array[5:9] for array in kept[::2]]
    del kept[::2]
    for number in range(100, 140):
        client.run("echo", np.full(COUNT, number, np.float32))
    assert [np.unique(array).tolist() for array in kept] == [[number] for number in range(1, 40, 2)]
    assert [array.tolist() for array in slices] == [[number] * 4 for number in range(0, 40, 2)]


def test_what_another_client_was_lent_is_taken_for_what_it_is(pool: PoolProcess, client: Client) -> None:
    with pool.client() as other:
        other.run("echo", 1.0)
        theirs, ours = floats(other, 3), floats(client, 4)
        assert np.unique(client.run("echo", theirs)["x"]).tolist() == [3]
        assert np.unique(other.run("echo", ours)["x"]).tolist() == [4]


def test_memory_is_used_again(client: Client) -> None:
    size = 16 << 20
    for number in range(80):  # more than one client may be lent
        array = np.full(size // 4, number, np.float32)
        assert client.run("echo", array)["x"][-1] == number
    assert lent_bytes(client) <= 1 << 30


@pytest.mark.parametrize("as_array", [True, False])
def test_what_map_has_sent_is_used_again_at_once(client: Client, as_array: bool) -> None:
    """By the count of references: the collector of cycles comes late, and its memory is cold by then."""
    inputs = np.ones((200, 50_000), np.float32)
    given = inputs if as_array else iter(inputs)
    gc.collect()
    gc.disable()
    try:
        for answer in client.map("rows", given, signature="double", in_flight=8):
            assert answer["y"][0] == 2
        touched = sum(segment._touched for segment in client._connected().shared_memory._segments)
        assert touched < 20 << 20, "40 MB went there, and as many came back"

        def few_are_left() -> bool:
            """What the last answer lies in. The client's thread may hold another one for a moment."""
            return sum(isinstance(each, client_memory.Region) for each in gc.get_objects()) <= 2

        eventually(few_are_left)
    finally:
        gc.enable()


def test_cancelled_and_late_jobs_give_their_memory_back(client: Client) -> None:
    for _ in range(3):
        futures = [doubled(client, np.full(8 * COUNT, 1, np.float32), "slow") for _ in range(6)]
        late = client.submit("slow", np.full(8 * COUNT, 1, np.float32), signature="double", timeout=0.05)
        for future in futures:
            future.cancel()
        with pytest.raises(errors.DeadlineExceeded):
            late.result()
    shared_memory = client._connected().shared_memory

    def is_free() -> bool:
        gc.collect()
        return shared_memory.place(200 << 20) is not None

    eventually(is_free, 30)


def test_freed_pages_go_back_to_the_machine(pool: PoolProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_memory, "TRIM_S", 0.2)
    with pool.client() as client:
        client.run("echo", 1.0)
        array = floats(client, 1, 8 << 20)
        client.run("echo", array)
        assert shared_bytes() >= array.nbytes
        del array
        eventually(lambda: shared_bytes() < 1 << 20)


def shared_bytes() -> int:
    """Of all segments mapped here: what they take of the machine's memory."""
    return sum(
        os.stat(entry.path).st_blocks * 512
        for entry in os.scandir("/proc/self/fd")
        if os.path.islink(entry.path) and "memfd:tf-worker-pool" in os.readlink(entry.path)
    )


# --- deaths -------------------------------------------------------------------------------------------------------

KILLED = """
import sys, time, numpy as np
from pool import Client
client = Client(sys.argv[1])
client.run("echo", 1.0)
array = client.empty(1 << 20)
futures = [client.submit("slow", {"x": array}, signature="double", timeout=90) for _ in range(40)]
print("submitted", flush=True)
time.sleep(600)
"""


def test_a_killed_client_is_noticed_at_once_and_its_memory_comes_back(own_pool: PoolProcess) -> None:
    with own_pool.client() as client:
        client.run("echo", 1.0)
        assert lent_bytes(client) == 0
        child = subprocess.Popen([sys.executable, "-c", KILLED, own_pool.endpoint], stdout=subprocess.PIPE)
        assert child.stdout is not None
        assert child.stdout.readline() == b"submitted\n"
        eventually(lambda: lent_bytes(client) > 0)
        assert memory_files(own_pool.pid) == 1
        child.kill()
        child.wait(10)
        child.stdout.close()
        eventually(lambda: lent_bytes(client) == 0, 10)  # well before 30 s of silence
        assert memory_files(own_pool.pid) == 0
        for worker in own_pool.workers():
            eventually(lambda worker=worker: memory_files(worker) == 0)  # type: ignore[misc]
        assert client.run("echo", 2.0)["x"] == 2


def test_a_killed_worker_costs_no_answer(own_pool: PoolProcess) -> None:
    with own_pool.client() as client:
        client.run("echo", 1.0)
        arrays = [floats(client, number) for number in range(24)]
        for _ in range(2):
            futures = [doubled(client, array, "slow") for array in arrays]
            os.kill(own_pool.workers()[0], signal.SIGKILL)
            for number, future in enumerate(futures):
                assert np.unique(future.result(90)["y"]).tolist() == [2 * number]
            own_pool.await_log("ready", 60)


def test_a_killed_pool_that_returns_costs_no_answer_and_no_array(own_pool: PoolProcess) -> None:
    with own_pool.client() as client:
        kept = [client.run("echo", np.full(COUNT, 9, np.float32))["x"] for _ in range(3)]
        arrays = [floats(client, number) for number in range(12)]
        futures = [doubled(client, array, "slow") for array in arrays]
        own_pool.running.kill()
        own_pool.running.wait(10)
        own_pool.start()
        for number, future in enumerate(futures):
            assert np.unique(future.result(90)["y"]).tolist() == [2 * number]
        assert all(np.unique(array).tolist() == [9] for array in kept)
        assert [np.unique(array).tolist() for array in arrays] == [[number] for number in range(12)]
        assert np.unique(doubled(client, arrays[5]).result()["y"]).tolist() == [10]
        again = floats(client, 6)
        assert np.unique(doubled(client, again).result()["y"]).tolist() == [12]
        assert lent_bytes(client) > 0


def test_what_kills_its_workers_is_kept_as_it_was_and_known_again(own_pool: PoolProcess) -> None:
    with own_pool.client() as client:
        client.run("echo", 1.0)
        poison = floats(client, -1)
        poison[:] = np.arange(COUNT)
        poison[7] = -1
        with pytest.raises(errors.Quarantined):
            client.run("rows", {"x": poison}, signature="kill", timeout=90)
        octets = poison.tobytes()
        # The disk is a thread's.
        eventually(lambda: any(octets in path.read_bytes() for path in own_pool.state.rglob("*") if path.is_file()))
        with pytest.raises(errors.Quarantined, match="the same inputs were quarantined"):
            client.run("rows", {"x": poison.copy()}, signature="kill", timeout=90)
        assert np.unique(doubled(client, floats(client, 2)).result()["y"]).tolist() == [4]
        assert lent_bytes(client) > 0
    with own_pool.client() as other:
        eventually(lambda: lent_bytes(other) == 0)  # what is on the disk has let go of it


def test_lent_memory_is_not_copied_for_what_is_too_large_to_keep(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of the pool's loop would copy all of it, a gigabyte maybe."""
    monkeypatch.setattr(
        "pool.client.shared_memory.TRIM_S", 1000.0
    )  # what the pool has read there stays in its own books
    large = np.zeros(32 << 20, np.float32)
    bounds = "[quarantine]\nmax_bytes = '1MiB'\n[queue]\nmax_attempts = 2\n[restart]\nbackoff_max = '1s'"
    with pool_process(stub_config(models=MODELS, rest=bounds)) as pool, pool.client() as client:
        client.run("echo", 1.0)
        assert client.run("rows", {"x": large}, signature="kill", timeout=60)["y"].shape == large.shape
        assert lent_bytes(client) > large.nbytes
        Path(f"/proc/{pool.pid}/clear_refs").write_text("5")  # the peak is from now on
        before = memory_bytes(pool.pid, "VmRSS")
        large[0] = -1
        with pytest.raises(errors.Quarantined, match="attempts ended with their worker"):
            client.run("rows", {"x": large}, signature="kill", timeout=90)
        with pytest.raises(errors.Quarantined, match="the same inputs were quarantined"):
            client.run("rows", {"x": large.copy()}, signature="kill", timeout=90)
        own = memory_bytes(pool.pid, "VmHWM") - memory_bytes(pool.pid, "RssShmem")
        assert own - before < large.nbytes // 2


def memory_bytes(pid: int, name: str) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) << 10


@pytest.mark.parametrize("bounds", ["max_bytes = 'off'", "client_max_bytes = '300KiB'", "max_bytes = '1KiB'"])
def test_without_lent_memory_all_is_sent(bounds: str) -> None:
    rest = f"[shared_memory]\n{bounds}\n"
    with pool_process(stub_config(models=MODELS, rest=rest)) as pool, pool.client() as client:
        for number in range(4):
            array = floats(client, number)
            other = floats(client, number + 0.5)
            futures = [doubled(client, each) for each in (array, other, np.full(COUNT, number, np.float32))]
            found = [np.unique(future.result()["y"]).tolist() for future in futures]
            assert found == [[2 * number], [2 * number + 1], [2 * number]]
        assert lent_bytes(client) <= 300 << 10


def test_who_comes_by_tcp_is_sent_everything() -> None:
    config = stub_config('listen = ["tcp://127.0.0.1:*"]', models=MODELS)
    with pool_process(config) as pool:
        found = re.search(r"listening at (tcp://\S+) too", pool.text())
        assert found is not None
        with Client(found[1]) as client:
            array = floats(client, 3)
            assert np.unique(doubled(client, array).result()["y"]).tolist() == [6]
            assert lent_bytes(client) == 0


def test_clients_come_and_go_and_leave_nothing(own_pool: PoolProcess) -> None:
    before_shm = set(os.listdir("/dev/shm"))

    def visit() -> None:
        with own_pool.client() as client:
            client.run("echo", 1.0)
            assert client.run("echo", floats(client, 1))["x"][0] == 1

    def all_gone() -> bool:
        return memory_files(own_pool.pid) == 0

    for _ in range(10):
        visit()
    eventually(all_gone)
    gc.collect()
    ours, pools = descriptors(os.getpid()), descriptors(own_pool.pid)
    workers = {pid: descriptors(pid) for pid in own_pool.workers()}
    for _ in range(200):
        visit()
    eventually(all_gone)
    gc.collect()
    eventually(lambda: descriptors(own_pool.pid) <= pools)
    for pid, count in workers.items():
        eventually(lambda pid=pid, count=count: descriptors(pid) <= count)  # type: ignore[misc]
    eventually(lambda: descriptors(os.getpid()) <= ours + 2)  # libzmq closes them by and by
    eventually(lambda: set(os.listdir("/dev/shm")) <= before_shm)  # others run tests beside these, and tidy up too


def test_a_forked_child_has_memory_of_its_own(client: Client) -> None:
    array = floats(client, 3)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            other = floats(client, 4)
            right = np.unique(client.run("echo", array)["x"]).tolist() == [3]
            status = 0 if right and np.unique(client.run("echo", other)["x"]).tolist() == [4] else 2
            client.close()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert np.unique(client.run("echo", array)["x"]).tolist() == [3]
    assert np.unique(array).tolist() == [3]


# --- everything at once -------------------------------------------------------------------------------------------


class Walker:
    """Submits, cancels, drops and keeps at random, and holds each answer against its own input."""

    def __init__(self, client: Client, seed: int, steps: int) -> None:
        self._client = client
        self._chosen = random.Random(seed)
        self._steps = steps
        self._kept: list[tuple[float, Any]] = []
        self.right = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._walk()
        except BaseException as error:
            self.failure = error

    def _walk(self) -> None:
        chosen, waiting = self._chosen, list[tuple[float, Any, Any]]()
        for step in range(self._steps):
            value = float(chosen.randrange(1 << 20))
            count = chosen.choice([1, 1000, COUNT // 4, COUNT // 4 + 1, COUNT, 3 * COUNT])
            array = self._client.empty(count) if chosen.random() < 0.5 else np.empty(count, np.float32)
            array[:] = value
            model = chosen.choice(["rows", "cut"])
            signature = chosen.choice(["double", "view", "double"])
            timeout = 0.003 if chosen.random() < 0.1 else 90
            future = self._client.submit(model, {"x": array}, signature=signature, timeout=timeout)
            match chosen.randrange(8):
                case 0:
                    future.cancel()
                case 1:
                    del future  # nobody waits
                    continue
            waiting.append((value, signature, future))
            if len(waiting) > 12:
                self._check(*waiting.pop(chosen.randrange(len(waiting))))
            if step % 10 == 0:
                self._look_again()
        for each in waiting:
            self._check(*each)
        self._look_again()

    def _check(self, value: float, signature: str, future: Any) -> None:
        if future.cancelled():
            return
        try:
            answer = future.result(90)
        except errors.DeadlineExceeded:
            return
        expected = {"y": 2 * value} if signature == "double" else {"same": value, "column": value}
        for name, each in expected.items():
            assert (answer[name] == np.float32(each)).all(), (value, signature, name)
            self._kept.append((each, answer[name]))
        self.right += 1
        while len(self._kept) > 30:
            self._kept.pop(self._chosen.randrange(30))

    def _look_again(self) -> None:
        for value, array in self._kept:
            assert (array == np.float32(value)).all(), "an answer has changed since"


def serving(client: Client) -> set[int]:
    return {pid_of(slot) for slot in client.status().slots if slot.state == "READY"}


def walk(pool: PoolProcess, seed: int, deaths: int = 0) -> None:
    """Two clients, one with two threads, and workers that are killed meanwhile, one after the other."""
    with pool.client() as one, pool.client() as other:
        walkers = [Walker(client, 10 * seed + number, 120) for number, client in enumerate((one, one, other))]
        threads = [threading.Thread(target=walker.run) for walker in walkers]
        for thread in threads:
            thread.start()
        killed: set[int] = set()
        for _ in range(deaths):
            eventually(lambda: len(serving(one) - killed) == 2, 60)
            victim = random.Random(seed).choice(sorted(serving(one) - killed))
            os.kill(victim, signal.SIGKILL)
            killed.add(victim)
        for thread in threads:
            thread.join(120)
        for walker in walkers:
            if walker.failure is not None:
                raise walker.failure
        assert all(walker.right > 20 for walker in walkers)


@pytest.mark.parametrize("seed", [1, 2])
def test_answers_are_right_whatever_happens_beside_them(pool: PoolProcess, seed: int) -> None:
    walk(pool, seed)


def test_answers_are_right_while_workers_die(own_pool: PoolProcess) -> None:
    walk(own_pool, seed=3, deaths=3)


@pytest.mark.parametrize("way", ["run", "map"])
@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_at_lines_of_a_job_with_lent_memory_leaves_no_byte_behind(pool: PoolProcess, way: str) -> None:
    """Nor is memory used again while a job that was interrupted may still read or write it: all answers are right."""

    def ask(client: Client, value: float) -> None:
        given = [floats(client, value + n) for n in range(3)]
        if way == "run":
            found = [client.run("rows", {"x": each}, signature="double", outputs=["y"], timeout=90) for each in given]
        else:
            found = list(client.map("rows", ({"x": each} for each in given), signature="double", outputs=["y"]))
        for n, each in enumerate(found):
            assert np.all(each["y"] == 2 * (value + n))

    with pool.client() as client:
        ask(client, 1.0)
        ask(client, 2.0)
        line = 1
        while True:
            with AtLine(line, interrupt) as trace, contextlib.suppress(KeyboardInterrupt):
                ask(client, 10.0 * line)
            if trace.passed < line:
                break
            ask(client, 10.0 * line + 5)
            line += 61
        assert line > 400, "it has passed few lines"
        gc.collect()
        connection = client._connection
        assert connection is not None
        eventually(lambda: not len(connection._dialogue.jobs))
        assert connection.shared_memory._segments
        eventually(lambda: all(map(is_free, connection.shared_memory._segments)))


def is_free(segment: client_memory.Segment) -> bool:
    segment._collect()
    segment._space.forget()
    return list(segment._space.free()) == [(0, len(segment.memory))]

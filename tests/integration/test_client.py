"""The client against a real pool with stub models."""

import asyncio
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator
from concurrent import futures
from pathlib import Path

import numpy as np
import pytest

from pool import AsyncClient, Client, errors
from pool.wire.records import Tensor
from pool.wire.tensors import DTYPES
from support.pool_process import STUBS, PoolProcess, pool_process, stub_config
from support.processes import eventually, freeze, pid_of
from support.run_ledger import Ledger


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return Ledger(tmp_path_factory.mktemp("ledger"))


@pytest.fixture(scope="module")
def pool(ledger: Ledger) -> Iterator[PoolProcess]:
    """With the model `held`, whose jobs end when the test says so, one after the other."""
    held = f'[[model]]\nname = "held"\npath = "stub:counter?{ledger.path}"\n'
    with pool_process(stub_config("lanes = 1", models=STUBS + held)) as running:
        yield running


def test_submit_gives_a_future_of_arrays(client: Client) -> None:
    future = client.submit("echo", {"x": np.arange(6, dtype=np.float32).reshape(2, 3)})
    assert future.result(10)["x"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert future.done()
    assert not future.cancel()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_comes_back_as_it_went(client: Client, dtype: str) -> None:
    if dtype == "string":
        sent = np.array([b"", b"a\0", b"\0\0", "ü".encode(), bytes(range(256))], dtype=object)
    else:
        sent = np.frombuffer(os.urandom(DTYPES[dtype].itemsize * 24), np.uint8)
        sent = (sent % 2).view(DTYPES[dtype]) if DTYPES[dtype].itemsize == 1 else sent.view(DTYPES[dtype])
        sent = sent.reshape(2, 3, 4)
    got = client.run("echo", sent, signature=dtype)["x"]
    assert got.dtype == sent.dtype
    assert got.shape == sent.shape
    assert got.tobytes() == sent.tobytes() if dtype != "string" else got.tolist() == sent.tolist()


@pytest.mark.parametrize(
    "sent",
    [
        np.float32(3),
        np.zeros((0, 5), np.float32),
        np.arange(10, dtype=np.float32)[::-3],
        np.arange(6, dtype=np.float32).reshape(2, 3).T,
        np.arange(3, dtype=">f4"),
    ],
    ids=["0-d", "empty", "strided", "transposed", "big-endian"],
)
def test_layouts(client: Client, sent: np.ndarray) -> None:
    got = client.run("echo", sent)["x"]
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, sent)


def test_python_values(client: Client) -> None:
    assert client.run("echo", [[1, 2], [3, 4]])["x"].dtype == np.float32
    assert client.run("echo", 1.5)["x"] == 1.5
    assert client.run("echo", {"x": ["a", b"b\0"]}, signature="string")["x"].tolist() == [b"a", b"b\0"]


def test_the_input_may_be_changed_after_submit(client: Client) -> None:
    array = np.ones(100_000, np.float32)
    future = client.submit("echo", array)
    array[:] = 2
    assert (future.result(10)["x"] == 1).all()


def test_a_result_is_the_callers_own(client: Client) -> None:
    result = client.run("echo", np.ones(3, np.float32))["x"]
    result += 1
    assert result.tolist() == [2, 2, 2]


def test_run_map_and_order(client: Client) -> None:
    results = client.map("echo", (float(number) for number in range(300)), in_flight=7)
    assert [float(result["x"]) for result in results] == list(range(300))


def test_map_reads_no_further_than_it_may_and_cancels_what_is_in_flight(client: Client) -> None:
    read: list[int] = []

    def inputs() -> Iterator[float]:
        for number in range(1000):
            read.append(number)
            yield float(number)

    with pytest.raises(errors.InvalidInput, match="timeout"):
        client.map("echo", inputs(), timeout=-1.0)
    assert not read
    results = client.map("echo", inputs(), in_flight=5)
    assert read == [0, 1, 2, 3, 4], "before anybody asks for a result"
    next(results)
    next(results)
    assert read == [0, 1, 2, 3, 4, 5]
    assert isinstance(results, Generator)
    results.close()
    assert len(read) == 6


def test_errors_say_what_would_be_right(client: Client) -> None:
    with pytest.raises(errors.ModelNotFound, match=r"no model 'ecko'; did you mean 'echo'\?"):
        client.run("ecko", 1.0)
    with pytest.raises(errors.InvalidInput, match=r"no signature 'flot32'; did you mean 'float32'\?"):
        client.run("echo", 1.0, signature="flot32")
    with pytest.raises(errors.InvalidInput, match="no input 'y'; there are: x"):
        client.run("echo", {"y": 1.0})
    with pytest.raises(errors.InvalidInput, match=r"missing input 'x' \(float32 of any shape\)"):
        client.run("echo", {})
    with pytest.raises(errors.InvalidInput, match="no output 'z'"):
        client.run("echo", 1.0, outputs=["z"])
    with pytest.raises(errors.InvalidInput, match=r"input 'x': expected float32 of any shape, got string \[\]"):
        client.run("echo", "text")
    with pytest.raises(errors.InvalidInput, match=r"expected float64 \[\], got float64 \[2\]"):
        client.run("faults", [1.0, 2.0], signature="sleep")
    with pytest.raises(errors.InvalidInput, match="several signatures"):
        client.run("faults", 1.0)
    for timeout in ("5", [1], -1, float("nan"), float("inf"), 10**400, True):
        with pytest.raises(errors.InvalidInput, match="timeout is"):
            client.run("echo", 1.0, timeout=timeout)  # type: ignore[arg-type]
    with pytest.raises(errors.InvalidInput, match="masked"):
        client.run("echo", np.ma.array([1.0], mask=[True]))
    with pytest.raises(errors.InvalidInput, match="cannot be sent as a tensor"):
        client.run("echo", {"x": object()})
    with pytest.raises(errors.ModelFailed, match="as told") as caught:
        client.run("faults", "as told", signature="fail")
    assert not caught.value.retryable
    assert client.run("echo", 1.0)["x"] == 1.0


def test_the_deadline_is_kept_while_the_lane_is_busy(client: Client) -> None:
    """Else its result came; and the client, which gives up two seconds later, says it in other words."""
    with pytest.raises(errors.DeadlineExceeded, match="the timeout ended while it ran"):
        client.run("faults", 2.0, signature="sleep", timeout=0.5)


def test_cancel(client: Client, ledger: Ledger) -> None:
    """One that runs and one that waits."""
    with ledger.occupied(client, "held") as running:
        for future in (running, client.submit("held", 1, signature="add")):
            assert future.cancel()
            assert future.cancelled()
        eventually(lambda: client.status().queue.jobs == 0)


def test_many_threads_share_a_client(client: Client) -> None:
    wrong = []

    def work(seed: int) -> None:
        for number in range(60):
            value = seed * 1000.0 + number
            if client.run("echo", value)["x"] != value:
                wrong.append(value)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


def test_asyncio(pool: PoolProcess) -> None:
    async def main() -> list[float]:
        async with AsyncClient(pool.endpoint) as client:
            results = await asyncio.gather(*(client.submit("echo", float(number)) for number in range(50)))
            with pytest.raises(errors.ModelNotFound):
                await client.submit("nobody", 1.0)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.submit("faults", 5.0, signature="sleep"), 0.2)
            assert (await client.status()).state == "SERVING"
            return [float(result["x"]) for result in results]

    assert asyncio.run(main()) == list(range(50))


def test_asyncio_of_many(pool: PoolProcess) -> None:
    async def main() -> list[float]:
        async with AsyncClient(pool.endpoint) as client:
            jobs = client.submit_many("echo", [np.full(1, n, np.float32) for n in range(50)])
            assert jobs[7].cancel()
            rest = await asyncio.gather(*jobs[:7], *jobs[8:])
            (refused,) = client.submit_many("nobody", [1.0])
            with pytest.raises(errors.ModelNotFound):
                await refused
            large = await client.empty((1024, 64), np.float32)
            large[:] = 3.0
            assert (await client.submit("echo", large))["x"].tolist() == large.tolist()
            return [float(result["x"][0]) for result in rest]

    assert asyncio.run(main()) == [float(n) for n in range(50) if n != 7]


FORK = """
import os, sys, warnings
warnings.simplefilter("ignore")
from pool import Client, errors
client = Client(sys.argv[1])
assert client.run("echo", 1.0)["x"] == 1.0
slow = client.submit("held", {"n": [-1]}, signature="gated")
pid = os.fork()
if pid == 0:
    try:
        slow.result(5)
    except errors.PoolUnreachable as error:
        assert "before the fork" in str(error), error
    else:
        os._exit(3)
    assert client.run("echo", 2.0)["x"] == 2.0
    os._exit(7)
assert client.run("echo", 3.0)["x"] == 3.0
os.close(os.open(sys.argv[2], os.O_WRONLY))  # the gate, once the job waits there
assert slow.result(20)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
"""


def test_after_fork_a_client_starts_afresh(pool: PoolProcess, ledger: Ledger) -> None:
    subprocess.run([sys.executable, "-P", "-c", FORK, pool.endpoint, f"{ledger.path}.gate"], check=True, timeout=60)


@pytest.mark.promise(7)
def test_models_and_status(pool: PoolProcess, client: Client) -> None:
    models = {model.name: model for model in client.models()}
    assert models["echo"].ready_slots == (0, 1)
    assert models["counter"].stateful
    assert models["echo"].signatures["int64"].inputs == {"x": Tensor("int64", None)}
    status = client.status()
    assert status.pid == pool.pid
    assert [slot.state for slot in status.slots] == ["READY", "READY"]
    assert sorted(pid_of(slot) for slot in status.slots) == pool.workers()
    assert all(slot.incarnation >= 1 and (slot.memory_bytes or 0) > 1 << 20 for slot in status.slots)


def test_status_tells_what_a_slot_is_doing(client: Client, ledger: Ledger) -> None:
    with ledger.occupied(client, "held") as future:
        assert any("running held" in slot.doing for slot in client.status().slots)
    future.result(20)


def test_nobody_there(tmp_path: object) -> None:
    with (
        Client(f"ipc://{tmp_path}/none.sock", connect_timeout=0.3) as client,
        pytest.raises(errors.PoolUnreachable, match=r"waited 0\.3 s.; start one with `pool start`") as caught,
    ):
        client.run("echo", 1.0)
    assert caught.value.retryable


def test_a_closed_client_ends_its_futures(pool: PoolProcess, ledger: Ledger) -> None:
    client = pool.client()
    with ledger.occupied(client, "held") as future:
        client.run("echo", 1.0)
        client.close()
        with pytest.raises(errors.PoolUnreachable, match="closed"):
            future.result(5)
    with pytest.raises(errors.InvalidState, match="closed"):
        client.submit("echo", 1.0)


def client_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "pool-client"}


def test_a_dropped_client_ends_by_itself(pool: PoolProcess) -> None:
    before, files = client_threads(), len(os.listdir("/proc/self/fd"))
    assert Client(pool.endpoint).run("echo", 1.0)["x"] == 1.0
    future = Client(pool.endpoint).submit("faults", 0.3, signature="sleep")
    assert future.result(10)["pid"] > 0  # though the client is gone
    assert Client(pool.endpoint).status().pid == pool.pid
    # Those of other tests may end meanwhile. libzmq closes what a socket had a moment later, if others use its context.
    eventually(lambda: client_threads() <= before)
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= files)


def test_cancelled_futures_are_done_for_wait_and_as_completed(client: Client, ledger: Ledger) -> None:
    with ledger.occupied(client, "held") as slow:
        cancelled = client.submit("held", 1, signature="add")
        assert cancelled.cancel()
        assert not futures.wait([cancelled], timeout=1).not_done
    assert set(futures.as_completed([slow, cancelled], timeout=10)) == {slow, cancelled}


# A job that is done runs a callback at once, in the thread that adds it: so these are added to jobs that are held.


def test_a_callback_that_exits_harms_no_other_job(client: Client, ledger: Ledger) -> None:
    with ledger.occupied(client, "held") as held:
        jobs = [held, *(client.submit("held", 1, signature="add") for _ in range(5))]
        for job in jobs[:2]:
            job.add_done_callback(lambda _: sys.exit())
    assert all("total" in job.result(20) for job in jobs)


def test_a_callback_that_exits_harms_nobody_when_the_client_closes(pool: PoolProcess, ledger: Ledger) -> None:
    client = pool.client()
    with ledger.occupied(client, "held") as held:
        jobs = [held, *(client.submit("held", 1, signature="add") for _ in range(2))]
        jobs[0].add_done_callback(lambda _: sys.exit())
        client.close()
        for job in jobs:
            assert isinstance(job.exception(5), errors.PoolUnreachable)


def test_waiting_in_a_callback_is_refused_and_submitting_is_not(client: Client, ledger: Ledger) -> None:
    said: queue.Queue[object] = queue.Queue()

    def after(_: object) -> None:
        for wait in (lambda: client.run("echo", 2.0), client.status):
            try:
                wait()
            except errors.PoolError as error:
                said.put(str(error))
        client.submit("echo", 3.0).add_done_callback(lambda done: said.put(float(done.result()["x"])))

    with ledger.occupied(client, "held") as held:
        held.add_done_callback(after)
    assert "done-callback" in str(said.get(timeout=10))
    assert "done-callback" in str(said.get(timeout=10))
    assert said.get(timeout=10) == 3.0


FROZEN = """
import sys, time
from pool import Client
from pool.client import dispatch, pulse
assert (pulse.PING_S, pulse.SILENCE_S, pulse.OVERSLEPT_S, dispatch.LATE_S) == (1.0, 10.0, 1.0, 2.0)
pulse.PING_S, pulse.SILENCE_S, pulse.OVERSLEPT_S, dispatch.LATE_S = 0.1, 0.6, 0.3, 0.2
client = Client(sys.argv[1])
job = client.submit("told", {"n": [-1]}, signature="gated", timeout=2.0)
client.status()
print(time.monotonic() + 2.0 + dispatch.LATE_S, flush=True)
job.result()
assert client.run("told", 1, signature="add")["total"] == 0
"""


def test_a_client_that_was_frozen_reads_the_answers_of_that_time(tmp_path: Path) -> None:
    """For longer than it calls silence, and than its jobs' timeout with the client's margin."""
    ledger = Ledger(tmp_path)
    models = f'[[model]]\nname = "told"\npath = "stub:counter?{ledger.path}"\n'
    with pool_process(stub_config(devices='["cpu"]', models=models)) as pool, pool.client() as client:
        argv = [sys.executable, "-P", "-c", FROZEN, pool.endpoint]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            late = float(program.stdout.readline())
            freeze(program.pid)
            ledger.open_gate()
            eventually(lambda: client.status().queue.jobs == 0)
            assert [job.state for job in client.explain().jobs] == ["DONE"], "it was answered meanwhile"
            eventually(lambda: time.monotonic() > late)
            program.send_signal(signal.SIGCONT)
            assert program.wait(20) == 0


FORK_CALLBACK = """
import os, sys, threading, warnings
warnings.simplefilter("ignore")
from pool import Client, errors
from pool.client import default
client, ran, told = Client(sys.argv[1]), [], threading.Event()
slow = client.submit("held", {"n": [-1]}, signature="gated")
slow.add_done_callback(lambda _: ran.append(os.getpid()))
slow.add_done_callback(lambda _: told.set())
waits = client.submit("held", 1, signature="add")
default._client = Client(sys.argv[1])
default._lock.acquire()  # by another thread, say
pid = os.fork()
if pid == 0:
    assert isinstance(slow.exception(0), errors.PoolUnreachable)
    assert isinstance(waits.exception(0), errors.PoolUnreachable)
    assert not ran, "the parent's callback ran in the child"
    assert client.run("echo", 2.0)["x"] == 2.0
    assert default._client is None
    assert default._lock.acquire(timeout=0)
    sys.exit(7)  # with atexit: it ends the child's clients alone
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
os.close(os.open(sys.argv[2], os.O_WRONLY))  # the gate, once the job waits there
assert slow.result(20)
assert told.wait(20)  # the callbacks run a moment after the result is there
assert ran == [os.getpid()]
assert client.run("echo", 3.0)["x"] == 3.0
"""


def test_a_fork_leaves_the_parents_callbacks_to_the_parent(pool: PoolProcess, ledger: Ledger) -> None:
    argv = [sys.executable, "-P", "-c", FORK_CALLBACK, pool.endpoint, f"{ledger.path}.gate"]
    subprocess.run(argv, check=True, timeout=60)


IMPORT = """
import sys, time
import numpy  # its time is not ours
began = time.process_time()  # of this process alone: the machine's other work is not the import's
{statement}
print(time.process_time() - began)
assert "tensorflow" not in sys.modules
"""


def import_seconds(statement: str) -> float:
    def once() -> float:
        code = IMPORT.format(statement=statement)
        done = subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60, capture_output=True)
        return float(done.stdout)

    return min(once() for _ in range(5))


def test_import_is_quick_and_leaves_numpy_and_tensorflow_alone() -> None:
    code = "import sys, pool; pool.Client(); assert 'numpy' not in sys.modules and 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60)
    assert import_seconds("import pool") < 0.1
    # The client itself in multiples of what it stands on, because this machine's speed changes by half within an hour.
    assert import_seconds("import pool; pool.Client") < 6 * import_seconds("import zmq")


def test_a_pool_and_a_client_that_spin_answer_the_same() -> None:
    config = stub_config(devices='["cpu"]', rest="[advanced]\nspin_us = 100")
    with pool_process(config) as spinning, Client(spinning.endpoint, spin_us=100) as client:
        for n in range(20):
            assert client.run("echo", np.float32(n))["x"] == n
    for wrong in (-1, 10_001):
        with pytest.raises(ValueError, match=f"spin_us is {wrong}; give microseconds from 0 to 10000"):
            Client(spin_us=wrong)

"""Start, stop, locks, signals: what a pool leaves behind is nothing."""

import contextlib
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool import Client, errors
from support.commands import command_line, run_command
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import alive, eventually, freeze
from support.run_ledger import Ledger

pytestmark = pytest.mark.faults


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path)


def held(ledger: Ledger) -> str:
    """A pool's configuration: one of its jobs runs until the test opens the gate, and so long the others wait."""
    return stub_config("lanes = 1", models=f'[[model]]\nname = "told"\npath = "stub:counter?{ledger.path}"\n')


@contextlib.contextmanager
def drained(pool: PoolProcess, client: Client, ledger: Ledger) -> Iterator[None]:
    """The block begins a drain: while it lasts one job runs, and two are queued. They are finished, and then it ends.

    The signal that begins it is not sent again: a second one would end the drain.
    """
    workers = pool.workers()
    with ledger.occupied(client, "told") as running:
        queued = [client.submit("told", 1, signature="add") for _ in range(2)]
        eventually(lambda: client.status().queue.jobs == 3)
        yield
        pool.await_log("stopping: ")
        assert not running.done()
    assert pool.wait() == 0, pool.text()
    assert running.result(20)["total"].tolist() == [-1]
    assert [int(future.result(20)["total"]) for future in queued] == [0, 1]
    pool.assert_clean(workers)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_drains_and_ends_with_status_0(number: signal.Signals, ledger: Ledger) -> None:
    with pool_process(held(ledger)) as pool, pool.client() as client, drained(pool, client, ledger):
        pool.running.send_signal(number)


def test_pool_stop_drains_too(ledger: Ledger) -> None:
    with pool_process(held(ledger)) as pool, pool.client() as client:
        with drained(pool, client, ledger):
            stop = subprocess.Popen(command_line(pool, "stop"))
        assert stop.wait(20) == 0


def test_the_end_of_its_lifeline_drains_a_pool_that_has_other_clients(ledger: Ledger) -> None:
    """Whatever ends the process at the other end: the kernel closes it."""
    mine, theirs = socket.socketpair()
    pool = PoolProcess(held(ledger), options=("--lifeline", str(theirs.fileno())))
    try:
        with theirs:
            pool.inherited = (theirs.fileno(),)
            pool.start().await_ready()
        with pool.client() as client, drained(pool, client, ledger):
            mine.close()
    finally:
        mine.close()
        pool.kill()


def test_new_jobs_are_refused_while_the_pool_drains(ledger: Ledger) -> None:
    with pool_process(held(ledger)) as pool, pool.client(reconnect_timeout=0) as client:
        with ledger.occupied(client, "told") as slow:
            client.stop()
            with pytest.raises(errors.PoolUnreachable, match="stopping"):
                client.run("told", 1, signature="add")
        assert slow.result(20)


def test_a_drain_has_an_end() -> None:
    with pool_process(stub_config('drain_timeout = "300ms"')) as pool, pool.client(reconnect_timeout=0) as client:
        stuck = client.submit("faults", 60.0, signature="sleep")
        eventually(lambda: client.status().queue.jobs == 1)
        assert pool.stop() == 0
        with pytest.raises(errors.PoolUnreachable, match=r"drain took longer than 0\.3 s"):
            stuck.result(1)


def test_a_second_signal_ends_the_drain() -> None:
    with pool_process(stub_config()) as pool, pool.client(reconnect_timeout=0) as client:
        stuck = client.submit("faults", 60.0, signature="sleep")
        eventually(lambda: client.status().queue.jobs == 1)
        pool.running.send_signal(signal.SIGINT)
        pool.await_log("stopping: SIGINT came")
        assert pool.stop(signal.SIGINT) == 0
        with pytest.raises(errors.PoolUnreachable, match="told to stop at once"):
            stuck.result(1)


def test_a_signal_that_was_ignored_when_it_started_stays_ignored() -> None:
    """`nohup pool start &` outlives its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pool_process(stub_config()) as pool, pool.client() as client:
            pool.running.send_signal(signal.SIGHUP)
            assert client.run("echo", 1.0)["x"] == 1.0
            assert client.status().state == "SERVING"
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_pool_can_be_stopped_before_it_is_up() -> None:
    models = '[[model]]\nname = "slow"\npath = "stub:load-hang"\ndevices = "all"\n'
    pool = PoolProcess(stub_config(models=models)).start()
    try:
        pool.await_log("LOADING")
        assert pool.stop() == 0, pool.text()
    finally:
        pool.kill()


def test_a_live_pool_is_not_displaced() -> None:
    with pool_process(stub_config()) as pool, pool.client() as client:
        second = run_command(None, "start", "--config", str(pool.config))
        assert second.returncode == 1
        (told,) = second.stderr.splitlines()  # nothing of a configuration and slots that it would have had
        assert f"already running at {pool.endpoint} (pid {pool.pid})" in told
        assert client.run("echo", 1.0)["x"] == 1.0


def test_a_dead_pools_socket_is_taken_over() -> None:
    with pool_process(stub_config()) as pool:
        workers = pool.workers()
        pool.running.kill()
        pool.running.wait(10)
        assert pool.socket.exists()
        eventually(lambda: not any(alive(pid) for pid in workers), 3.0)
        pool.log.unlink()
        pool.start().await_ready()
        with pool.client() as client:
            assert client.run("echo", 1.0)["x"] == 1.0


@pytest.mark.promise(1)
@pytest.mark.promise(4)
def test_sigkill_of_the_pool_leaves_no_worker_and_no_future() -> None:
    with pool_process(stub_config()) as pool, pool.client(reconnect_timeout=0) as client:
        workers = pool.workers()
        futures = [client.submit("faults", 30.0, signature="sleep") for _ in range(8)]
        eventually(lambda: all(slot.busy_lanes == 2 for slot in client.status().slots))
        pool.running.kill()
        pool.running.wait(10)
        eventually(lambda: not any(alive(pid) for pid in workers), 20.0)  # the jobs run for longer
        for future in futures:
            with pytest.raises(errors.PoolUnreachable):
                future.result(10)


def test_a_client_finds_the_pool_again() -> None:
    with pool_process(stub_config()) as pool, pool.client() as client:
        assert client.run("echo", 1.0)["x"] == 1.0
        assert pool.stop() == 0
        with pytest.raises(errors.DeadlineExceeded, match=r"it has ended, \d+\.\d s ago; the job was not sent"):
            client.run("echo", 1.0, timeout=0.5)
        pool.log.unlink()
        pool.start().await_ready()
        assert client.run("echo", 2.0)["x"] == 2.0


def test_a_stopped_pool_answers_nobody_and_the_client_says_so() -> None:
    """SIGSTOP: the socket stands, nobody answers. The client's own clock ends the jobs."""
    with pool_process(stub_config()) as pool, pool.client() as client:
        client.run("echo", 1.0)
        freeze(pool.pid)
        try:
            with pytest.raises(errors.DeadlineExceeded, match="did not answer"):
                client.run("echo", 1.0, timeout=0.5)
        finally:
            pool.running.send_signal(signal.SIGCONT)


def test_who_may_use_the_socket() -> None:
    with pool_process(stub_config()) as pool:
        assert pool.socket.stat().st_mode & 0o077 == 0
        assert Path(f"{pool.socket}.workers").stat().st_mode & 0o077 == 0


def test_the_pool_imports_neither_tensorflow_nor_numpy() -> None:
    with pool_process(stub_config()) as pool, pool.client() as client:
        client.run("echo", 1.0)
        maps = Path(f"/proc/{pool.pid}/maps").read_text()
        assert "tensorflow" not in maps
        assert "numpy" not in maps
        environ = Path(f"/proc/{pool.pid}/environ").read_bytes().split(b"\0")
        assert b"CUDA_DEVICE_ORDER=PCI_BUS_ID" not in environ


@pytest.mark.promise(6)
def test_an_overload_is_an_answer(tmp_path: Path) -> None:
    """It comes while the pool is full, and waits for no room."""
    ledger = Ledger(tmp_path)
    models = f'[[model]]\nname = "told"\npath = "stub:counter?{ledger.path}"\n'
    config = stub_config("lanes = 1", '["cpu"]', models, rest="[queue]\nmax_jobs = 5")
    with pool_process(config) as pool, pool.client() as client:
        with ledger.occupied(client, "told") as running:
            busy = [running, *(client.submit("told", 1, signature="add") for _ in range(4))]
            with pytest.raises(errors.Overloaded, match="max_jobs") as caught:
                client.run("told", 1, signature="add")
            assert caught.value.retryable
            assert not any(future.done() for future in busy)
        assert all(future.result(20) for future in busy)


def test_memory_and_descriptors_stay_flat(pool: PoolProcess) -> None:
    """Jobs leave nothing behind in the pool: neither descriptors nor memory."""

    def resident() -> int:
        return int(Path(f"/proc/{pool.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with pool.client() as client:
        for _ in client.map("echo", (1.0 for _ in range(2000)), in_flight=100):
            pass
        before, files = resident(), len(os.listdir(f"/proc/{pool.pid}/fd"))
        for _ in client.map("echo", (1.0 for _ in range(4000)), in_flight=100):
            pass
        assert resident() - before < 2 << 20
        assert len(os.listdir(f"/proc/{pool.pid}/fd")) == files


def test_threads_of_clients_come_and_go(pool: PoolProcess) -> None:
    """Each client is a thread and a few descriptors; closed, it is neither."""
    with pool.client() as client:
        client.run("echo", 1.0)
    threads, files = set(threading.enumerate()), len(os.listdir("/proc/self/fd"))
    for _ in range(10):
        with pool.client() as client:
            client.run("echo", 1.0)
    assert not set(threading.enumerate()) - threads
    # libzmq closes what a socket had a moment later, if other clients of this process use its context.
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= files)

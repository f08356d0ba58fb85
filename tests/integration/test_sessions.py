"""`client.session(model)` against a real pool with stub models, which are written and die as they are told."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from pool import Client, errors
from support.pool_process import PoolProcess
from support.processes import eventually, freeze, pid_of
from workers.sessions import LEASE_S

CONFIG = """
[pool]
endpoint = "@endpoint@"
listen = ["tcp://127.0.0.1:*"]
devices = ["cpu", "cpu"]
[[model]]
name = "counter"
path = "stub:counter"
devices = "all"
[[model]]
name = "faults"
path = "stub:faults"
devices = "all"
[[model]]
name = "echo"
path = "stub:echo"
devices = "all"
"""
N = "add/n:0"
TOTAL = "add/total:0"


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    process = PoolProcess(CONFIG).start().await_ready()
    yield process
    process.stop()


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with Client(pool.endpoint) as client:
        yield client
        eventually(lambda: all(slot.state == "READY" for slot in client.status().slots))


def home(client: Client) -> int:
    (found,) = [model.scheduling.affinity for model in client.models() if model.name == "counter"]
    assert isinstance(found, int)
    return found


def test_a_run_takes_and_gives_what_it_names(client: Client) -> None:
    session = client.session("echo")
    big = np.arange(1 << 18, dtype=np.float32).reshape(512, -1)
    answer = session.run({"same": "float32/x:0", "op": ["float32"]}, {"float32/x:0": big})
    assert answer["op"] == [None]
    np.testing.assert_array_equal(answer["same"], big)
    assert session.run("string/x:0", {"string/x:0": "a"}).tolist() == b"a", "what is fed, as an array"
    assert type(client.session("counter").run(TOTAL, {N: 0})) is np.int64, "what is computed, as a scalar"


def test_what_a_session_writes_all_sessions_see(client: Client, pool: PoolProcess) -> None:
    one, other = client.session("counter"), client.session("counter")
    before = one.run(TOTAL, {N: 0})
    for _ in range(10):
        one.run("add", {N: 1})
        other.run("add", {N: 1})
    assert one.run(TOTAL, {N: 0}) == before + 20
    with Client(pool.endpoint) as another:
        assert another.session("counter").run(TOTAL, {N: 0}) == before + 20
        for _ in range(4):
            assert another.run("counter", 0, signature="add")["total"] == before + 20, "and so do jobs"


def test_several_threads_use_one_session(client: Client) -> None:
    session = client.session("counter")
    before = session.run(TOTAL, {N: 0})

    def add() -> None:
        for _ in range(25):
            session.run("add", {N: 1})

    threads = [threading.Thread(target=add) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert session.run(TOTAL, {N: 0}) == before + 100


def test_a_run_that_may_have_written_is_lost_with_its_worker(client: Client) -> None:
    session = client.session("counter")
    session.run(TOTAL, {N: 5})
    slot = home(client)
    freeze(pid_of(client.status().slots[slot]))
    failed: list[BaseException] = []

    def add() -> None:
        try:
            session.run(TOTAL, {N: 1})
        except BaseException as error:  # told by the test
            failed.append(error)

    thread = threading.Thread(target=add)
    thread.start()
    eventually(lambda: any(job.state == "LEASED" for job in client.explain().jobs))
    os.kill(pid_of(client.status().slots[slot]), signal.SIGKILL)
    thread.join(60)
    assert not thread.is_alive(), client.explain()
    (error,) = failed
    assert isinstance(error, errors.WorkerLost)
    assert not error.retryable
    assert "keeps state" in str(error)
    assert session.run(TOTAL, {N: 0}) == 0, "the next worker has the variables as they were loaded"


def test_a_private_session_is_its_own(client: Client) -> None:
    shared = client.session("counter")
    before = shared.run(TOTAL, {N: 1})
    with client.session("counter", private=True) as one, client.session("counter", private=True) as other:
        assert one.run(TOTAL, {N: 5}) == 5
        assert one.run(TOTAL, {N: 5}) == 10
        assert other.run(TOTAL, {N: 1}) == 1
        assert shared.run(TOTAL, {N: 0}) == before
    with pytest.raises(RuntimeError, match="closed Session"):
        one.run(TOTAL, {N: 5})


def has_no_more_sessions(client: Client) -> bool:
    """It is tried again until its time is over, so that is short; not known where it was over before the first try."""
    with pytest.raises((errors.Overloaded, errors.DeadlineExceeded)) as refusal:
        client.session("counter", private=True, device="slot:0", timeout=2.0).run(TOTAL, {N: 1})
    return "8 private sessions" in str(refusal.value)


def test_private_sessions_make_room_when_they_are_closed(client: Client) -> None:
    sessions = [client.session("counter", private=True, device="slot:0", timeout=60.0) for _ in range(9)]
    for session in sessions[:8]:
        session.run(TOTAL, {N: 1})
    eventually(lambda: has_no_more_sessions(client), 60.0)
    sessions[0].close()
    assert sessions[8].run(TOTAL, {N: 1}) == 1
    for session in sessions:
        session.close()


def test_a_private_session_dropped_without_close_makes_room_too(client: Client) -> None:
    for _ in range(20):
        assert client.session("counter", private=True, device="slot:1", timeout=20.0).run(TOTAL, {N: 1}) == 1


def test_a_private_session_is_lost_with_its_worker(client: Client) -> None:
    session = client.session("counter", private=True, device="slot:1")
    assert session.run(TOTAL, {N: 5}) == 5
    os.kill(pid_of(client.status().slots[1]), signal.SIGKILL)
    for _ in range(2):
        with pytest.raises(errors.WorkerLost) as caught:
            session.run(TOTAL, {N: 5})
        assert not caught.value.retryable
    assert "this private session is lost with its variables" in str(caught.value)
    session.close()
    assert client.session("counter", private=True, device="slot:1").run(TOTAL, {N: 5}) == 5


@pytest.mark.parametrize("ending", ["kill", "close"])
def test_private_sessions_end_with_their_client(client: Client, pool: PoolProcess, ending: str) -> None:
    script = f"""
import sys, pool
client = pool.Client({pool.endpoint!r})
sessions = [client.session("counter", private=True, device="slot:0") for _ in range(8)]
for session in sessions:
    session.run({TOTAL!r}, {{{N!r}: 5}})
print("opened", flush=True)
sys.stdin.readline()
client.close()
sys.stdin.readline()
"""
    command = [sys.executable, "-P", "-c", script]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"opened\n"
        eventually(lambda: has_no_more_sessions(client), 60.0)
        if ending == "kill":
            other.kill()
        else:
            other.stdin.write(b"\n")
            other.stdin.flush()
        assert LEASE_S > 60.0
        with client.session("counter", private=True, device="slot:0", timeout=60.0) as session:
            assert session.run(TOTAL, {N: 1}) == 1, "before its lease has ended"
        other.kill()
    pool.await_log("closed a private session of model counter: its client is gone")


def test_a_fork_does_not_use_its_parents_private_session(pool: PoolProcess) -> None:
    script = f"""
import os, pool
client = pool.Client({pool.endpoint!r})
with client.session("counter", private=True) as private:
    shared = client.session("counter")
    print(private.run({TOTAL!r}, {{{N!r}: 5}}))
    if not os.fork():
        shared.run({TOTAL!r}, {{{N!r}: 0}})
        try:
            private.run({TOTAL!r}, {{{N!r}: 5}})
        except pool.errors.PoolError as error:
            print(error, flush=True)
        private.close()
        os._exit(0)
    os.wait()
    print(private.run({TOTAL!r}, {{{N!r}: 5}}))
"""
    done = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert "belongs to the parent process" in done.stdout
    assert done.stdout.splitlines()[-1] == "10"


def test_a_timeout_counts_for_a_run(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would come to its end."""
    monkeypatch.setattr("pool.client.dispatch.LATE_S", 60.0)  # the pool says so, however late
    with pytest.raises(errors.DeadlineExceeded, match="the timeout ended"):
        client.session("faults").run("sleep", {"sleep/seconds:0": 2.0}, options={"timeout_in_ms": 500})


def test_a_trace_is_asked_for(client: Client) -> None:
    class Metadata:
        parsed = b""

        def ParseFromString(self, serialized: bytes) -> None:  # noqa: N802  # protobuf's name
            self.parsed = serialized

    metadata = Metadata()
    client.session("echo").run("int64/x:0", {"int64/x:0": 1}, {"trace_level": 3}, metadata)
    assert metadata.parsed == b"traced"


def test_over_tcp_a_session_reads_and_does_not_write(pool: PoolProcess) -> None:
    endpoint = next(line.split()[5] for line in pool.text().splitlines() if "listening at tcp" in line)
    with Client(endpoint) as remote:
        assert remote.session("echo").run("int64/x:0", {"int64/x:0": 1}) == 1
        for private in (False, True):
            with pytest.raises(
                errors.NotAllowed, match=r'runs graphs which write state or read files .* the right "sessions"'
            ):
                remote.session("counter", private=private).run(TOTAL, {N: 1})

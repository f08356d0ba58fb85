"""What happens where file descriptors run out: libzmq aborts a process that has none left."""

import contextlib
import os
import resource
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from pool import errors
from pool.loop import descriptors
from pool.serve import gate
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

PRELUDE = """
import os, resource, sys
from pool import Client, errors
def in_use():
    return os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd"))
def allow(number):
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
"""

FULL = """
with Client(sys.argv[1]) as first:
    assert first.run("echo", 0.0)["x"] == 0.0
    before, served, refused = in_use(), 0, 0
    for spare in range(48):  # so that each step of a connection is once the one that finds none left
        allow(before + spare)
        clients = [Client(sys.argv[1], reconnect_timeout=0) for _ in range(8)]
        futures = [client.submit("echo", float(n), timeout=30) for n, client in enumerate(clients)]
        for n, future in enumerate(futures):
            try:
                assert future.result(60)["x"] == n
                served += 1
            except errors.PoolUnreachable as error:
                assert "cannot make a connection" in str(error), error
                refused += 1
        assert first.run("echo", 1.0)["x"] == 1.0
        for client in clients:
            client.close()
    assert served > 20 and refused > 20, (served, refused)
    allow(before + 200)
    with Client(sys.argv[1]) as client:
        assert client.run("echo", 2.0)["x"] == 2.0
"""

SHARED = """
before = in_use()
clients = [Client(sys.argv[1]) for _ in range(10)]
for n, client in enumerate(clients):
    assert client.run("echo", float(n))["x"] == n
print(in_use() - before)
pid = os.fork()
if pid == 0:  # the context is the parent's: this one makes its own
    for n, client in enumerate(clients):
        assert client.run("echo", float(n))["x"] == n
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
for client in clients:
    assert client.run("echo", 1.0)["x"] == 1.0
    client.close()
assert in_use() == before
"""


def run(code: str, pool: PoolProcess) -> str:
    done = subprocess.run(
        [sys.executable, "-P", "-W", "ignore", "-c", PRELUDE + code, pool.endpoint],
        timeout=100, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_program_without_descriptors_is_told_so_and_lives_on(pool: PoolProcess) -> None:
    run(FULL, pool)


def test_the_clients_of_a_process_share_a_context_and_a_forked_child_has_another(pool: PoolProcess) -> None:
    assert int(run(SHARED, pool)) <= 5 + 9 * 10


LIMITS = """
import logging, resource, sys
from pool.loop import descriptors
logging.basicConfig(format="%(message)s")
soft, hard = (int(number) for number in sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
descriptors.allow_all()
print(descriptors.limit(), descriptors.reserve())
"""


@pytest.mark.parametrize(("soft", "hard", "reserve"), [(300, 6144, 3072), (300, 6143, 3071), (1000, 1000, 500)])
def test_a_pool_takes_what_its_user_may_have_and_says_where_that_is_too_little(
    soft: int, hard: int, reserve: int
) -> None:
    argv = [sys.executable, "-P", "-W", "ignore", "-c", LIMITS, str(soft), str(hard)]
    done = subprocess.run(argv, timeout=100, capture_output=True, text=True, check=True)
    assert done.stdout == f"{hard} {reserve}\n"
    said = (
        f"the limit is {hard} file descriptors: with fewer than 6144, a burst of connections can end the"
        " pool; raise `ulimit -Hn`\n"
    )
    assert done.stderr == (said if hard < descriptors.ENOUGH else "")


def in_use(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


@pytest.fixture(scope="module")
def narrow() -> Iterator[PoolProcess]:
    """A pool of its own, which has no more descriptors than are enough."""
    own = resource.getrlimit(resource.RLIMIT_NOFILE)
    if own[1] < 2 * descriptors.ENOUGH:
        pytest.skip(f"this user may have {own[1]} descriptors; the test takes {2 * descriptors.ENOUGH}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (own[1], own[1]))
    with pool_process(stub_config(devices='["cpu"]')) as pool:
        resource.prlimit(pool.pid, resource.RLIMIT_NOFILE, (descriptors.ENOUGH, descriptors.ENOUGH))
        yield pool


@pytest.mark.parametrize("suffix", ["", ".workers", ".memory"])
def test_connections_beyond_the_limit_less_a_reserve_are_refused(narrow: PoolProcess, suffix: str) -> None:
    """libzmq's listener would abort the pool. Who is connected is served; whoever comes later, when there is room."""
    pool, limit = narrow, descriptors.ENOUGH
    eventually(lambda: in_use(pool.pid) < limit // 4)  # whoever was there before is gone
    with pool.client() as before:
        assert before.run("echo", 1.0)["x"] == 1.0
        with contextlib.ExitStack() as stack:
            path = pool.endpoint.removeprefix("ipc://") + suffix
            kind = socket.SOCK_SEQPACKET if suffix == ".memory" else socket.SOCK_STREAM

            def let_in(knocks: socket.socket) -> bool:
                """Not yet, where too many knock at once."""
                assert pool.running.poll() is None
                return knocks.connect_ex(path) == 0

            for _ in range(limit):
                flood = stack.enter_context(socket.socket(socket.AF_UNIX, kind))
                flood.settimeout(20)
                eventually(lambda: let_in(flood))  # noqa: B023  # it is called at once
            assert before.run("echo", 2.0)["x"] == 2.0
            assert in_use(pool.pid) < limit
            assert pool.workers(), "and its workers are as they were"
            if not suffix:
                pool.await_log("file descriptors are left")
                refusal = "a connection, because file descriptors run out"
                # The last of them may still be in the listener's queue.
                eventually(lambda: before.status().refused.get(refusal, 0) > limit // 4)
                with pool.client(connect_timeout=0.5) as late, pytest.raises(errors.PoolUnreachable):
                    late.run("echo", 3.0)
        with pool.client() as after:
            assert after.run("echo", 3.0)["x"] == 3.0
        assert pool.running.poll() is None


def test_a_gate_may_close_before_libzmq_has_come_to_listen(tmp_path: Path) -> None:
    """What libzmq finds at its number, when it begins to wait there and when it ends, is the listener: or it aborts."""
    path = tmp_path / "gate.sock"
    for turn in range(300):
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
            router.linger = dealer.linger = 0
            door = gate.Gate(router, gate.local(path), f"ipc://{path}", Counter())
            if turn % 2:
                dealer.connect(f"ipc://{path}")
                dealer.send(b"x")
            if turn % 4 == 1:
                assert router.poll(5000)
            door.close()

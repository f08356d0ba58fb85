"""The gateway's processes of a real pool: whatever becomes of one, the pool serves and another one follows."""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool import Client, start
from pool.kept import add_token
from pool.wire.records import Gateway
from support.commands import run_command
from support.pool_process import PoolProcess, pool_process
from support.processes import alive, children, eventually, freeze, state

pytestmark = pytest.mark.gateway

ECHO = '[[model]]\nname = "echo"\npath = "stub:echo"\n'


def config(gateway: str, more: str = "") -> str:
    return f'[pool]\nendpoint = "@endpoint@"\ndevices = ["cpu"]\n[gateway]\n{gateway}\n{more}\n{ECHO}'


def gateway_of(pool: PoolProcess) -> Gateway:
    with Client(pool.endpoint) as client:
        found = client.status().gateway
    assert found is not None
    return found


def serving(pool: PoolProcess, processes: int = 1) -> Gateway:
    """Once all of them do."""

    def serve() -> bool:
        found = gateway_of(pool).processes
        return len(found) == processes and all(each.state == "SERVING" for each in found)

    eventually(serve, 40, lambda: gateway_of(pool))
    return gateway_of(pool)


def pids(gateway: Gateway) -> list[int]:
    found = [each.pid for each in gateway.processes if each.pid is not None]
    assert len(found) == len(gateway.processes)
    return found


def address(gateway: Gateway) -> tuple[str, int]:
    match = re.fullmatch(r"http://([\d.]+):(\d+)", gateway.url)
    assert match, gateway.url
    return match[1], int(match[2])


def asked(gateway: Gateway, token: str = "", timeout_s: float = 40.0) -> int:
    """The status of an answer: 404, for there is nothing at this path, or 401 without a token that is known."""
    connection = http.client.HTTPConnection(*address(gateway), timeout=timeout_s)
    with contextlib.closing(connection):
        connection.request("GET", "/nothing", headers={"Authorization": f"Bearer {token}"} if token else {})
        return connection.getresponse().status


@pytest.fixture(scope="module")
def pool() -> Iterator[PoolProcess]:
    with pool_process(config('listen = "127.0.0.1:0"\nprocesses = 2')) as running:
        yield running


def works(pool: PoolProcess) -> bool:
    with pool.client() as client:
        return bool(client.run("echo", [[1.0]])["x"][0][0] == 1.0)


def test_a_process_that_is_killed_returns_on_the_same_socket(pool: PoolProcess) -> None:
    before = serving(pool, 2)
    os.kill(pids(before)[0], signal.SIGKILL)
    eventually(lambda: gateway_of(pool).processes[0].restarts > before.processes[0].restarts)
    after = serving(pool, 2)
    assert after.url == before.url
    assert pids(after)[0] != pids(before)[0]
    assert pids(after)[1] == pids(before)[1], "the other one has nothing to do with it"
    assert asked(after) == 404
    assert works(pool)
    pool.await_log("gateway 0 died: SIGKILL (out of memory?); the next one starts in ")


def test_connections_made_while_none_lives_wait_and_are_answered(pool: PoolProcess) -> None:
    gateway = serving(pool, 2)
    for pid in pids(gateway):
        freeze(pid)  # so that none is answered before it dies
    statuses: list[int] = []
    askers = [threading.Thread(target=lambda: statuses.append(asked(gateway))) for _ in range(8)]
    for each in askers:
        each.start()
    host, port = address(gateway)
    eventually(lambda: (_waiting(port) or 0) >= len(askers), saw=lambda: _waiting(port))
    for pid in pids(gateway):
        os.kill(pid, signal.SIGKILL)
    for each in askers:
        each.join(60)
    assert statuses == [404] * len(askers)
    assert works(pool)
    assert host == "127.0.0.1"


def _waiting(port: int, peer: int = 0) -> int | None:
    """What the kernel holds for the side at this port: connections that nobody has accepted, or a peer's bytes."""
    return None if (found := _queues(port, peer)) is None else found[1]


def _queues(port: int, peer: int) -> tuple[int, int] | None:
    """Of the side at this port: what it has sent and its peer's kernel has not taken, and what it has not received."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, _, queues, *_ = line.split()
        if [int(each.partition(":")[2], 16) for each in (local, remote)] == [port, peer]:
            sent, received = queues.split(":")
            return int(sent, 16), int(received, 16)
    return None


def _is_read(ours: socket.socket) -> bool:
    """Whether the gateway has read all that we have sent. On a busy machine it may still be on its way."""
    our_port, port = ours.getsockname()[1], ours.getpeername()[1]
    sent = _queues(our_port, port)
    return sent is not None and sent[0] == 0 and _waiting(port, our_port) == 0


def test_a_process_that_hangs_is_killed_and_another_follows(pool: PoolProcess) -> None:
    before = serving(pool, 2)
    freeze(pids(before)[1])
    eventually(lambda: gateway_of(pool).processes[1].restarts > before.processes[1].restarts, 40)
    after = serving(pool, 2)
    eventually(lambda: not alive(pids(before)[1]))  # the next one does not wait for its end
    assert [asked(after) for _ in range(4)] == [404] * 4
    pool.await_log("gateway 1 died: it gave no sign of life for 15 s")


def test_status_shows_it_to_a_person(pool: PoolProcess) -> None:
    gateway = serving(pool, 2)
    first, second = pids(gateway)
    done = run_command(pool, "status")
    assert re.search(
        rf"^gateway at {gateway.url}: SERVING pid {first}, SERVING pid {second}, \d+ restarts?$", done.stdout, re.M
    ), done.stdout


def test_a_pool_without_the_section_has_none_and_reads_no_port() -> None:
    with pool_process(f'[pool]\nendpoint = "@endpoint@"\ndevices = ["cpu"]\n{ECHO}') as pool:
        with pool.client() as client:
            assert client.status().gateway is None
        assert "gateway" not in pool.text()


def test_a_port_that_is_taken_ends_the_start_with_one_clear_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        place = f"127.0.0.1:{other.getsockname()[1]}"
        pool = PoolProcess(config(f'listen = "{place}"'))
        try:
            pool.start()
            assert pool.wait() == 1
            last = pool.text().splitlines()[-1]
            assert last == (
                f"pool: the gateway cannot listen at {place}: another program uses this port; end it, or write another"
                " port into [gateway] listen"
            )
            pool.assert_clean([])
        finally:
            pool.kill()


@pytest.mark.promise(4)
def test_a_pool_that_is_killed_leaves_no_gateway_and_a_free_port() -> None:
    pool = PoolProcess(config('listen = "127.0.0.1:0"\nprocesses = 2'))
    try:
        gateway = serving(pool.start().await_ready(), 2)
        doomed = pids(gateway)
        freeze(doomed[0])
        os.kill(pool.pid, signal.SIGKILL)
        eventually(lambda: not any(map(alive, doomed)), saw=lambda: list(map(state, doomed)))
        # Its last thread may end a moment after its first, which is what is seen to be gone.
        eventually(lambda: _is_free(address(gateway)))
    finally:
        pool.kill()


def _is_free(place: tuple[str, int]) -> bool:
    try:
        socket.create_server(place).close()
    except OSError:
        return False
    return True


def test_a_reload_replaces_the_processes_and_a_removed_token_ends(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    alice = add_token(tokens, "alice")
    pool = PoolProcess(config(f'listen = "127.0.0.1:0"\ntokens = "{tokens}"'))
    try:
        before = serving(pool.start().await_ready())
        assert [asked(before, token) for token in ("", "nonsense", alice)] == [401, 401, 404]
        assert run_command(pool, "reload").stdout == "nothing changed\n"
        tokens.unlink()
        bob = add_token(tokens, "bob")
        assert asked(before, bob) == 401, "nobody has read it again"
        done = run_command(pool, "reload")
        assert re.fullmatch(r"\[gateway\] tokens: \".*\" → \".*\"\n", done.stdout), done.stderr
        eventually(lambda: asked(gateway_of(pool), bob) == 404)
        serving(pool)
        eventually(lambda: asked(gateway_of(pool), alice) == 401)
        after = serving(pool)
        assert after.url == before.url
        assert after.processes[0].restarts == 0, "it was replaced, and has not died"
        eventually(lambda: not alive(pids(before)[0]))

        text = pool.config.read_text()
        pool.config.write_text(text.replace('listen = "127.0.0.1:0"', 'listen = "127.0.0.1:1"'))
        refused = run_command(pool, "reload")
        assert refused.returncode == 2
        assert '[gateway] listen: "127.0.0.1:0" → "127.0.0.1:1": this needs a new pool' in refused.stderr
        pool.config.write_text(text.replace("[gateway]\n", "[gateway]\nprocesses = 3\n"))
        assert run_command(pool, "reload").stdout == "[gateway] processes: 1 → 3\n"
        assert asked(serving(pool, 3), bob) == 404
        pool.config.write_text(text)
        assert run_command(pool, "reload").returncode == 0
        serving(pool)
        eventually(lambda: len(children(pool.pid)) == 2, saw=lambda: children(pool.pid))
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_it_goes_before_the_workers_and_each_step_is_in_the_log() -> None:
    pool = PoolProcess(config('listen = "127.0.0.1:0"'))
    try:
        serving(pool.start().await_ready())
        text = pool.whole_log()
        steps = [
            "stopping: SIGTERM came",
            "gateway 0: stops",
            "gateway 0: stopped",
            "STOPPING",
            "stopped: SIGTERM came",
        ]
        places = [text.index(step) for step in steps]
        assert places == sorted(places), text
    finally:
        pool.kill()


def test_a_request_that_has_begun_when_the_pool_stops_is_answered() -> None:
    pool = PoolProcess(config('listen = "127.0.0.1:0"'))
    try:
        gateway = serving(pool.start().await_ready())
        with socket.create_connection(address(gateway), timeout=20) as slow:
            slow.sendall(b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nab")
            eventually(lambda: _is_read(slow))
            pool.running.terminate()
            pool.await_log("gateway 0: stops")
            slow.sendall(b"cd")
            assert slow.recv(65536).startswith(b"HTTP/1.1 404 ")
        assert pool.wait() == 0
        pool.assert_clean([])
        assert "is killed" not in pool.text()
    finally:
        pool.kill()


def test_one_that_never_ends_holds_up_neither_the_stop_nor_the_pool() -> None:
    pool = PoolProcess(config('listen = "127.0.0.1:0"'))
    try:
        frozen = pids(serving(pool.start().await_ready()))
        freeze(frozen[0])
        assert pool.stop() == 0
        assert not any(map(alive, frozen))
    finally:
        pool.kill()


def test_a_gateway_that_cannot_start_is_tried_again_and_the_pool_serves(tmp_path: Path) -> None:
    """A package of its own is broken, as by an upgrade that went wrong."""
    broken = "import sys\nif 'pool.gateway' in sys.orig_argv: sys.modules['uvloop'] = None\n"
    (tmp_path / "sitecustomize.py").write_text(broken)
    pool = PoolProcess(config('listen = "127.0.0.1:0"'), {"PYTHONPATH": str(tmp_path)})
    try:
        pool.start().await_ready()
        eventually(lambda: gateway_of(pool).processes[0].restarts >= 2, 40)
        assert works(pool)
        [process] = gateway_of(pool).processes
        assert process.state in ("BACKOFF", "STARTING")
        assert "ModuleNotFoundError: import of uvloop halted" in process.reason
        pool.await_log("gateway 0 | ModuleNotFoundError")
        shown = run_command(pool, "status").stdout
        assert re.search(r"^gateway 0 is (BACKOFF|STARTING): exit status 1: ModuleNotFoundError", shown, re.M), shown
        assert run_command(pool, "health").returncode == 0, "the pool's readiness does not depend on it"
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_a_pool_without_the_packages_says_how_to_get_them(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['uvloop'] = None\n")
    environ = {"PYTHONPATH": str(tmp_path)}
    pool = PoolProcess(config('listen = "127.0.0.1:0"'), environ)
    try:
        pool.start()
        assert pool.wait() == 2
        missing = "the gateway needs uvloop: pip install 'tf-worker-pool[gateway]'"
        assert pool.text().splitlines()[-1] == f"pool: [gateway]: {missing}"
        pool.assert_clean([])
        done = run_command(None, "check", "--config", str(pool.config), environ=environ)
        assert (done.returncode, done.stderr) == (1, f"pool: this pool would not start: {missing}\n")
    finally:
        pool.kill()


def test_its_settings_stand_in_no_command_line_and_no_environment(tmp_path: Path) -> None:
    add_token(tmp_path / "tokens", "alice")
    digest = (tmp_path / "tokens").read_text().split()[1]
    with pool_process(config(f'listen = "127.0.0.1:0"\ntokens = "{tmp_path / "tokens"}"')) as pool:
        [pid] = pids(serving(pool))
        seen = [Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")]
        assert all(seen)
        for each in seen:
            assert digest.encode() not in each
            assert bytes.fromhex(digest) not in each
        assert b"pool.gateway\0--number\x000" in seen[0]


def test_the_pools_process_imports_nothing_of_the_gateway_but_what_starts_it() -> None:
    code = "import sys, pool.serve; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True).stdout
    assert "pool.processes.gateways" in loaded.split()
    assert not {"pool.gateway", "pool.gateway.settings", "httptools", "uvloop", "orjson", "numpy"} & {*loaded.split()}


def test_a_programs_own_pool_has_a_gateway_that_ends_with_it() -> None:
    settings = {"pool": {"devices": ["cpu"]}, "gateway": {"listen": "127.0.0.1:0"}}
    with start({**settings, "model": [{"name": "echo", "path": "stub:echo"}]}) as pool:

        def serves() -> bool:
            gateway = pool.status().gateway
            return gateway is not None and gateway.processes[0].state == "SERVING"

        eventually(serves)
        gateway = pool.status().gateway
        assert gateway is not None
        assert asked(gateway) == 404
        [pid] = pids(gateway)
    assert not alive(pid)

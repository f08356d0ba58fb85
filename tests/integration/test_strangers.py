"""Strangers and liars at a TCP endpoint: they get nothing, fill nothing, and keep nobody on this machine waiting."""

import contextlib
import json
import os
import resource
import selectors
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq

from attacker.zmtp import COMMAND, MORE, Link, frame, greeting, message, ready
from integration.flood import SPARE
from integration.keyed_pool import KeyedPool, keyed_pool
from pool import Client, errors
from pool.client.context import shared
from pool.client.peer import Peer
from pool.client.sources import Sources
from pool.keys import make_pair, read_pair, read_public
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, decode, encode
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

pytestmark = pytest.mark.remote

MOST = 200  # connections
ACCEPTED_UNSEEN = 1100  # as many libzmq may take in before the pool has looked, see `pool.serve.gate`
FLOOD, FLOODS = 10_000, 4  # connections, and processes that make them
FLOOD_BYTES = 64 << 20
BYTES = 32 << 20  # of [queue] max_bytes
PIECE = bytes(1 << 16)
SMALL_QUEUE = f'[queue]\nmax_bytes = "{BYTES}B"\n'


@pytest.fixture(scope="module")
def pool() -> Iterator[KeyedPool]:
    with keyed_pool(rest=SMALL_QUEUE, security=f"max_connections = {MOST}") as pool:
        yield pool


@pytest.fixture(autouse=True)
def honest(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each of them, who may come is served."""
    yield
    if "pool" in request.fixturenames:
        pool: KeyedPool = request.getfixturevalue("pool")
        assert pool.process.running.poll() is None, pool.process.text()
        with pool.client("alice") as client:
            eventually(lambda: client.run("echo", 1.0)["x"] == 1.0)


def port_of(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host, int(port)


@contextlib.contextmanager
def linked(endpoint: str) -> Iterator[Link]:
    with socket.create_connection(port_of(endpoint), timeout=30.0) as connection:
        yield Link(connection)


def refused(pool: PoolProcess, what: str) -> int:
    with pool.client() as client:
        return sum(number for reason, number in client.status().refused.items() if what in reason)


def in_use(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def resident_bytes(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * resource.getpagesize()


@contextlib.contextmanager
def relay(endpoint: str, most_bytes: int | None = None) -> Iterator[tuple[str, bytearray]]:
    """Hands on what comes, both ways, but to the pool no more than `most_bytes`; and keeps what went there."""
    taken = bytearray()
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener, selectors.DefaultSelector() as watch:
        pairs: dict[socket.socket, socket.socket] = {}

        def pump() -> None:
            while not over.is_set():
                for key, _ in watch.select(0.1):
                    one = key.fileobj
                    assert isinstance(one, socket.socket)
                    if one is listener:
                        near = listener.accept()[0]
                        far = socket.create_connection(port_of(endpoint))
                        pairs[near], pairs[far] = far, near
                        watch.register(near, selectors.EVENT_READ, "to the pool")
                        watch.register(far, selectors.EVENT_READ)
                        continue
                    try:
                        data = one.recv(1 << 16)
                        if key.data:
                            data = data if most_bytes is None else data[: most_bytes - len(taken)]
                            taken.extend(data)
                            if most_bytes is not None and len(taken) >= most_bytes:
                                watch.unregister(one)
                        pairs[one].sendall(data)
                    except OSError:
                        data = b""
                    if not data:
                        for end in (one, pairs[one]):
                            with contextlib.suppress(KeyError, ValueError):
                                watch.unregister(end)
                            end.close()

        watch.register(listener, selectors.EVENT_READ)
        thread = threading.Thread(target=pump, daemon=True)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}", taken
        finally:
            over.set()
            thread.join(10)
            for end in pairs:
                end.close()


# --- what libzmq does, so that a test fails where it changes


def test_without_a_handler_libzmq_lets_every_key_in_unless_the_domain_is_enforced(tmp_path: Path) -> None:
    make_pair(tmp_path, "server")
    server, stranger = read_pair(tmp_path / "server.key_secret", os.geteuid()), zmq.curve_keypair()
    for enforced, comes in ((0, True), (1, False)):
        with zmq.Context() as context, context.socket(zmq.ROUTER) as router, context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            router.curve_server, router.curve_secretkey = True, server.secret.encode()
            router.zap_domain = b"pool"
            router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, enforced)
            port = router.bind_to_random_port("tcp://127.0.0.1")
            dealer.curve_serverkey = server.public.encode()
            dealer.curve_publickey, dealer.curve_secretkey = stranger
            dealer.connect(f"tcp://127.0.0.1:{port}")
            dealer.send(b"in")
            assert bool(router.poll(5000 if comes else 500)) is comes


# --- handshakes


def test_a_handshake_that_is_cut_at_any_byte_ends_in_seconds(pool: KeyedPool) -> None:
    """The bytes of a real one, up to there; then it says nothing any more."""
    with relay(pool.endpoint) as (here, taken):
        with Client(here, key=pool.secret("alice"), server_key=pool.server_key) as client:
            client.run("echo", 1.0)
        whole = bytes(taken)
    assert len(whole) > 500
    cuts = range(len(whole))
    for first in cuts[:: MOST // 2]:
        with contextlib.ExitStack() as stack:
            links = [stack.enter_context(linked(pool.endpoint)) for _ in cuts[first : first + MOST // 2]]
            for link, cut in zip(links, cuts[first:], strict=False):
                with contextlib.suppress(ConnectionError):
                    link.connection.sendall(whole[:cut])
            for link in links:
                link.await_close()


def test_a_handshake_that_is_replayed_lets_nobody_in(pool: KeyedPool) -> None:
    before = refused(pool.process, "")
    with relay(pool.endpoint) as (here, taken):
        with Client(here, key=pool.secret("alice"), server_key=pool.server_key) as client:
            assert client.run("echo", 5.0)["x"] == 5.0
            jobs = client.status().answered["done"]
        whole = bytes(taken)
    for _ in range(3):
        with linked(pool.endpoint) as link, contextlib.suppress(ConnectionError):
            link.connection.sendall(whole)
            link.await_close()
    with pool.process.client() as client:
        assert client.status().answered["done"] == jobs, "nothing of it was run"
        assert refused(pool.process, "") == before, "nothing of it was read"


def test_other_mechanisms_let_nobody_in(pool: KeyedPool) -> None:
    for mechanism in (b"NULL", b"PLAIN", b"GSSAPI", b"\xff" * 20):
        with linked(pool.endpoint) as link, contextlib.suppress(ConnectionError):
            link.connection.sendall(greeting(mechanism) + ready((b"Socket-Type", b"DEALER")))
            link.await_close()


# --- who somebody is


def test_who_claims_to_be_somebody_is_nobody_where_no_key_is_asked_for(pool: KeyedPool) -> None:
    """A property of the peer's own is not libzmq's word."""
    public = read_public(pool.clients / "alice.key", os.geteuid()).encode()
    with pool_process(stub_config('listen = ["tcp://127.0.0.1:*"]')) as plain:
        endpoint = next(line.split()[5] for line in plain.text().splitlines() if "listening at tcp" in line)
        with linked(endpoint) as link:
            instance = claimed(link, (b"User-Id", public), (b"Peer-Address", b"localhost:0:0:1"))
            link.connection.sendall(message(encode(wire.Ask(1, "stop", ""), instance)))
            answer = decode(wire.CLIENT_MESSAGES, [zmq.Frame(each) for each in link.read_message()]).message
            assert isinstance(answer, wire.Answer)
            assert "right" in (answer.error or "")
            with plain.client() as client:
                accounts = {each.name: each.connections for each in client.status().accounts}
            assert accounts["anybody"] == 1
            assert not any(name.startswith(("key:", "alice")) for name in accounts)


def test_nor_at_the_unix_socket(pool: KeyedPool) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30.0)
        connection.connect(str(pool.process.socket))
        claimed(Link(connection), (b"Peer-Address", b"localhost:54321:0:1"))
        with pool.process.client() as client:

            def accounts() -> dict[str, int]:
                return {each.name: each.connections for each in client.status().accounts}

            eventually(lambda: accounts()[f"uid:{os.getuid()}"] == 2, saw=accounts)  # former ones may go later
            assert "uid:54321" not in accounts()


def claimed(link: Link, *properties: tuple[bytes, bytes]) -> bytes:
    """Comes with these properties. The instance that it is told."""
    link.connection.sendall(greeting())
    link.read(64)
    link.connection.sendall(ready((b"Socket-Type", b"DEALER"), *properties))
    _, size = link.read(2)
    link.read(size)
    link.connection.sendall(message(encode(wire.Open("liar"), NO_INSTANCE)))
    return decode(wire.CLIENT_MESSAGES, [zmq.Frame(each) for each in link.read_message()]).instance


def test_a_routing_id_is_nobody_s_to_choose(pool: KeyedPool) -> None:
    """Nor another client's to take over."""
    own = read_pair(pool.secret("alice"), os.geteuid())
    with pool.client("alice") as victim, zmq.Context() as context:
        victim.run("echo", 1.0)
        waiting = victim.submit("faults", 0.2)
        for identity in (b"victim", b"\0\0\0\0\1", os.urandom(20)):
            with context.socket(zmq.DEALER) as thief:
                thief.linger, thief.identity = 0, identity
                thief.curve_serverkey = read_public(pool.server_key, os.geteuid()).encode()
                thief.curve_publickey, thief.curve_secretkey = own.public.encode(), own.secret.encode()
                thief.connect(pool.endpoint)
                thief.send_multipart(encode(wire.Open("thief"), NO_INSTANCE))
                assert thief.poll(10_000)
                answer = decode(wire.CLIENT_MESSAGES, thief.recv_multipart(copy=False)).message
                if identity[0]:
                    assert isinstance(answer, wire.Refusal)
                    assert "routing id" in answer.text
        waiting.exception(30.0)
        assert victim.run("echo", 2.0)["x"] == 2.0


# --- messages without end


def flood(link: Link, data: bytes, most_bytes: int = 1 << 30) -> int:
    """How much of it went before the pool hung up."""
    sent = 0
    try:
        while sent < most_bytes:
            link.connection.sendall(data)
            sent += len(data)
    except (ConnectionError, TimeoutError):
        return sent
    raise AssertionError(f"the pool took {sent} bytes")


def test_before_the_handshake_nobody_sends_much(pool: KeyedPool) -> None:
    before = resident_bytes(pool.process.pid)
    for opening in (greeting(b"CURVE") + bytes((COMMAND | 2,)) + (BYTES).to_bytes(8), greeting(b"CURVE")[:-1]):
        with linked(pool.endpoint) as link:
            link.connection.sendall(opening)
            # A little at a time: so much in one go could be over before the pool has looked.
            sent, ends = 0, time.monotonic() + 30.0
            with contextlib.suppress(ConnectionError):
                while time.monotonic() < ends:
                    link.connection.sendall(bytes(8192))
                    sent += 8192
                    time.sleep(0.01)
                raise AssertionError(f"still connected after {sent} bytes")
    assert resident_bytes(pool.process.pid) < before + BYTES


def test_over_plain_tcp_a_message_without_end_is_ended() -> None:
    config = stub_config('listen = ["tcp://127.0.0.1:*"]', rest=SMALL_QUEUE)
    with pool_process(config) as plain, plain.client() as beside:
        endpoint = next(line.split()[5] for line in plain.text().splitlines() if "listening at tcp" in line)
        before = resident_bytes(plain.pid)
        highest = 0
        for has_spoken in (False, True):
            with linked(endpoint) as link:
                link.shake()
                if has_spoken:
                    frames = encode(wire.Open("endless"), NO_INSTANCE)
                    link.connection.sendall(b"".join([*(frame(each, MORE) for each in frames[:-1]), frame(frames[-1])]))
                    link.read_message()
                pieces = frame(PIECE, MORE)
                with contextlib.suppress(ConnectionError):
                    for _ in range(100 * BYTES // len(pieces)):
                        link.connection.sendall(pieces)
                        highest = max(highest, resident_bytes(plain.pid))
                        time.sleep(0.002)
                    raise AssertionError("the pool took it all")
            assert beside.run("echo", 1.0)["x"] == 1.0
        assert highest - before < 20 * BYTES
        assert refused(plain, "its message was too long") == 1
        assert refused(plain, "did not say who it is") == 1
        eventually(lambda: resident_bytes(plain.pid) < before + 3 * BYTES)


def test_who_has_keys_and_many_connections_fills_no_memory_either(pool: KeyedPool) -> None:
    """Each begins a message that is small enough for itself, and does not end it; together they are too many."""
    part = BYTES * 2 // 5
    array = np.zeros(BYTES * 3 // 5 // 4, np.float32)
    with contextlib.ExitStack() as stack:
        for _ in range(4):
            here, taken = stack.enter_context(relay(pool.endpoint, part))
            client = stack.enter_context(Client(here, key=pool.secret("alice"), server_key=pool.server_key))
            client.submit("echo", array)
            eventually(lambda: len(taken) == part)  # noqa: B023  # it is called at once
        eventually(lambda: refused(pool.process, "its message was too long") > 0)


# --- connections without end


def test_thousands_of_connections_keep_nobody_on_this_machine_waiting(pool: KeyedPool) -> None:
    """They come from another process, as fast as it can, and say nothing."""
    before = in_use(pool.process.pid)
    host, port = port_of(pool.endpoint)
    program = (
        "import resource, socket, sys, time\n"
        "until = time.monotonic() + 20\n"
        "hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))\n"
        "held = []\n"
        "for number in range(4000):\n"
        "    if time.monotonic() > until: break\n"
        "    try:\n"
        "        one = socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)\n"
        "        held.append(one)\n"
        "        if len(held) > 900: held.pop(0).close()\n"
        "    except OSError: pass\n"
        "    if number % 100 == 0: print(number, flush=True)\n"
    )
    argv = [sys.executable, "-c", program, host, str(port)]
    highest = 0
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as strangers, pool.process.client() as beside:
        assert strangers.stdout is not None
        assert strangers.stdout.readline()
        while strangers.poll() is None:
            assert beside.run("echo", 1.0, timeout=10.0)["x"] == 1.0
            highest = max(highest, in_use(pool.process.pid))
    assert strangers.returncode == 0
    assert highest > before + MOST // 2, "there was a flood"
    assert highest < before + MOST + ACCEPTED_UNSEEN
    assert refused(pool.process, "as many over TCP as there may be") > 0
    assert pool.process.text().count("accepts no connection") == 1, "nor do they fill the log"
    eventually(lambda: in_use(pool.process.pid) < before + 50)


def test_ten_thousand_connections_keep_no_client_waiting_that_is_there() -> None:
    """From several processes, which keep as many at once as they may. The default bound of connections holds."""
    with keyed_pool() as pool, contextlib.ExitStack() as stack:
        process = pool.process
        beside, far = stack.enter_context(process.client()), stack.enter_context(pool.client("alice"))
        for client in (beside, far):
            assert client.run("echo", 1.0)["x"] == 1.0
        descriptors, memory = in_use(process.pid), resident_bytes(process.pid)
        host, port = port_of(pool.endpoint)
        floods = [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-m", "integration.flood", host, str(port), str(FLOOD // FLOODS), str(number)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=Path(__file__).parents[1],
                )
            )
            for number in range(FLOODS)
        ]
        told: dict[int, dict[str, int]] = {}

        def listen(number: int) -> None:
            for line in floods[number].stdout or ():
                told[number] = json.loads(line)

        listeners = [threading.Thread(target=listen, args=(number,)) for number in range(FLOODS)]
        for listener in listeners:
            listener.start()
        try:
            most_descriptors, most_memory, ends = 0, 0, time.monotonic() + 90.0
            while sum(each["attempts"] for each in told.values()) < FLOOD:
                assert time.monotonic() < ends, told
                for client in (beside, far):
                    assert client.run("echo", 1.0, timeout=20.0)["x"] == 1.0
                most_descriptors = max(most_descriptors, in_use(process.pid))
                most_memory = max(most_memory, resident_bytes(process.pid))
            held, made = (sum(each[what] for each in told.values()) for what in ("held", "made"))
            each = resource.getrlimit(resource.RLIMIT_NOFILE)[1] - SPARE
            assert made > FLOOD * 9 // 10, told
            assert held >= min(made, FLOODS * each), "and at once"
            assert descriptors + 900 < most_descriptors < descriptors + 1000 + ACCEPTED_UNSEEN, "the bound was met"
            assert most_memory < memory + FLOOD_BYTES
            assert refused(process, "as many over TCP as there may be") > 0
        finally:
            for flood in floods:
                assert flood.stdin is not None
                flood.stdin.close()
            for listener in listeners:
                listener.join(30)
        assert [flood.wait(30) for flood in floods] == [0] * FLOODS
        with pool.client("bob") as late:
            assert late.run("echo", 2.0)["x"] == 2.0
        assert far.run("echo", 3.0)["x"] == 3.0, "who was there still is"
        eventually(lambda: in_use(process.pid) < descriptors + 50)
        assert process.text().count("accepts no connection") == 1


def test_a_stranger_who_knows_the_pool_s_key_is_counted_and_no_more(pool: KeyedPool, tmp_path: Path) -> None:
    _, secret = make_pair(tmp_path, "mallory")
    before = refused(pool.process, "its key may not enter")
    for _ in range(20):
        with Client(pool.endpoint, key=secret, server_key=pool.server_key) as client, pytest.raises(errors.NotAllowed):
            client.run("echo", 1.0)
    assert refused(pool.process, "its key may not enter") >= before + 20
    assert pool.process.text().count("its key may not enter") <= 1


def test_what_is_sent_after_the_handshake_was_refused_is_told_as_refused(pool: KeyedPool, tmp_path: Path) -> None:
    """libzmq has ended the connection by then, and takes no message any more."""
    _, secret = make_pair(tmp_path, "mallory")
    peer = Peer.of(pool.endpoint, 1.0, 1.0, secret, pool.server_key)
    with (
        shared() as context,
        contextlib.closing(Sources()) as sources,
        contextlib.closing(context.channel(peer.endpoint, sources, peer.keys)) as channel,
    ):
        eventually(lambda: not zmq.zmq_poll([(channel._dealer, int(zmq.POLLOUT))], 0))
        channel.send([b"one", b"two"])
        assert channel.is_broken
        assert channel.look(), "who is about to wait hears of it"
        assert isinstance(channel.refusal, errors.NotAllowed)

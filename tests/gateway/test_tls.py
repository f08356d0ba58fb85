import asyncio
import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import requests

from gateway.echo import response, serving
from gateway.running import gateway
from pool.wire.gateway import GatewayLimits
from support.pool_process import PoolProcess
from support.processes import eventually

BEGIN = b"\x16\x03\x01\x02\x00\x01\x00"  # of a ClientHello

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl to make a certificate")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
            *("-keyout", str(folder / "key.pem"), "-out", str(folder / "certificate.pem")),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    return folder


def test_requests_small_and_large_are_answered_over_tls(pool: PoolProcess, certificate: Path) -> None:
    chain, key = str(certificate / "certificate.pem"), str(certificate / "key.pem")
    with gateway(pool.endpoint, certificate=chain, key=key) as door:
        url = f"https://localhost:{door.port}/nothing"
        session = requests.Session()
        for size in (3, 3_000_000):
            answer = session.post(url, data=np.zeros(size, np.uint8).tobytes(), verify=chain, timeout=20)
            assert answer.status_code == 404
        # Plain HTTP and half a handshake end; the next is answered.
        with pytest.raises(requests.ConnectionError):
            requests.get(f"http://localhost:{door.port}/nothing", timeout=20)
        with socket.create_connection(("127.0.0.1", door.port)) as cut:
            cut.send(b"\x16\x03\x01\x02\x00")
        context = ssl.create_default_context(cafile=chain)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        raw = socket.create_connection(("127.0.0.1", door.port))
        with context.wrap_socket(raw, server_hostname="localhost") as secure:
            secure.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            assert secure.recv(100).startswith(b"HTTP/1.1 404")
        assert session.get(url, verify=chain, timeout=20).status_code == 404


def test_who_has_not_ended_his_handshake_counts_as_a_connection(
    pool: PoolProcess, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """He may be anybody, and OpenSSL holds for him what he sends."""
    monkeypatch.setattr("pool.gateway.http.server.HANDSHAKE_S", 600.0)  # nobody's time is over while this test looks
    chain, key = str(certificate / "certificate.pem"), str(certificate / "key.pem")
    context = ssl.create_default_context(cafile=chain)
    bounds = GatewayLimits(max_connections=3)
    with gateway(pool.endpoint, certificate=chain, key=key, limits=bounds) as door, ExitStack() as stack:

        def comes() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", door.port), timeout=20))

        def is_served() -> bool:
            """False where it is closed without a word. Who is served stays."""
            try:
                secure = stack.enter_context(context.wrap_socket(comes(), server_hostname="localhost"))
                secure.sendall(b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n")
                return secure.recv(12) == b"HTTP/1.1 404"
            except (ssl.SSLEOFError, ConnectionError):
                return False

        assert is_served()
        hangs_up, speaks_plainly = comes(), comes()
        for each in (hangs_up, speaks_plainly):
            each.send(BEGIN)
        assert not is_served()
        hangs_up.close()
        eventually(is_served)
        assert not is_served()
        speaks_plainly.send(b"GET / HTTP/1.1\r\n\r\n" * 40)
        eventually(is_served)
        assert not is_served()


def test_a_handshake_that_is_under_way_when_the_server_ends_is_ended_and_its_request_answered(
    certificate: Path,
) -> None:
    async def main() -> None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate / "certificate.pem", certificate / "key.pem")
        async with serving(tls=tls) as (server, _, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            while not server.connections:
                await asyncio.sleep(0.01)
            stopping = asyncio.create_task(server.close())
            await asyncio.sleep(0)
            assert server.stops
            await writer.start_tls(
                ssl.create_default_context(cafile=certificate / "certificate.pem"), server_hostname="localhost"
            )
            writer.write(b"GET /p HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await response(reader))[0] == 200
            await asyncio.wait_for(stopping, 20)
            writer.close()

    asyncio.run(main())


def test_a_gateway_that_ends_waits_for_no_handshake(pool: PoolProcess, certificate: Path) -> None:
    chain, key = str(certificate / "certificate.pem"), str(certificate / "key.pem")
    with ExitStack() as stack:
        with gateway(pool.endpoint, certificate=chain, key=key) as door:
            begun = stack.enter_context(socket.create_connection(("127.0.0.1", door.port), timeout=20))
            begun.send(BEGIN)
            assert requests.get(f"https://localhost:{door.port}/", verify=chain, timeout=20).status_code == 404
        assert begun.recv(1) == b"", "it was accepted before the other one, and is closed"

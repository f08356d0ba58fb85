import shutil
import socket
import ssl
import subprocess
from pathlib import Path

import numpy as np
import pytest
import requests

from gateway.running import gateway
from support.pool_process import PoolProcess

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

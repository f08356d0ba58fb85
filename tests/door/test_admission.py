"""Who may come in: by which name, from which page, with which token, over TLS."""

import shutil
import socket
import ssl
import subprocess
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from support.doors import connected, start_door
from support.pools import RunningPool, command, until

pytestmark = pytest.mark.door

PATH = "/v1/models/double"


def test_names_and_pages_of_this_machine_come_in(running: RunningPool) -> None:
    with start_door(running, "hosts = ['Gpu.example']\norigins = ['https://dash.example/']\n") as door:

        def status(**headers: str) -> int:
            return httpx.get(door.url + PATH, headers=headers).status_code

        for good in ("LOCALHOST", door.address, "[::1]:8000", socket.gethostname(), "gpu.Example:80"):
            assert status(host=good, origin=f"http://{good}") == 200
        for bad in ("evil.example", "127.0.0.1.evil.example:80", "a@localhost", "localhost/x", "["):
            assert status(host=bad) == 421
        assert status(origin="https://dash.example") == 200
        for origin in ("http://evil.example", "null", "http://localhost.evil.example", "https://dash.example:444"):
            assert status(origin=origin) == 403


def test_tokens_are_made_replaced_and_taken_away_while_the_door_serves(running: RunningPool, tmp_path: Path) -> None:
    file, config = tmp_path / "tokens.txt", ("--config", tmp_path / "config.toml")
    config[1].write_text("[door]\nlisten = '0.0.0.0:1'\n")
    assert "listen = '0.0.0.0:1' lets other machines in; set tokens" in command("door", *config, status=2)
    config[1].write_text("[door]\ngrpc = '127.example:1'\n")
    assert "grpc = '127.example:1' lets other machines in" in command("door", *config, status=2)
    config[1].write_text("[door]\nlisten = '0.0.0.0:1'\ntokens = 'tokens.txt'\n")

    def new(name: str) -> str:
        return command("token", "new", name, *config).strip()

    assert "`pool token new NAME` makes it" in command("door", *config, status=2)
    assert "is no name of a token" in command("token", "new", "a b", *config, status=2)
    ann, bob = new("ann"), new("bob")
    assert ann not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    with start_door(running, f"tokens = '{file}'\n") as door, httpx.Client(base_url=door.url) as caller:

        def status(*shown: str) -> int:
            return caller.get(PATH, headers=[("authorization", each) for each in shown]).status_code

        def lets_in(*tokens: str) -> None:
            until(lambda: [each for each in (ann, bob) if status(f"Bearer {each}") == 200] == [*tokens], f"{tokens}")

        lets_in(ann, bob)
        assert caller.get("/v2/health/ready").status_code == 200  # load balancers have none
        answer = caller.get(PATH)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert answer.json()["error"] == "a token is needed: send the header Authorization: Bearer TOKEN"
        for bad in (f"Bearer {ann[:-1]}", f"Basic {ann}", f"Bearer {file.read_text()[4:68]}", "Bearer", ann):
            assert status(bad) == 401
        assert (status(f"bearer {ann}"), status(f"Bearer {ann}", f"Bearer {bob}")) == (200, 400)
        replaced, bob = bob, new("bob")
        lets_in(ann, bob)
        assert status(f"Bearer {replaced}") == 401
        file.chmod(0o660)  # whoever is of the group could have written it
        lets_in()
        file.chmod(0o600)
        lets_in(ann, bob)
        text = file.read_text()
        for content, tokens in (("junk", []), (text.splitlines()[1], [bob]), ("", []), (text, [ann, bob])):
            file.write_text(content)
            lets_in(*tokens)
        file.unlink()
        lets_in()


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate")
def test_tls(running: RunningPool, tmp_path: Path) -> None:
    for name, more in (("own", ["-nodes"]), ("other", ["-nodes"]), ("locked", ["-passout", "pass:secret"])):
        files = ["-out", tmp_path / f"{name}.pem", "-keyout", tmp_path / f"{name}.key"]
        subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", *more, *subject, *files], check=True)
    path, pair = tmp_path / "config.toml", f"certificate = '{tmp_path}/own.pem'\ncertificate_key = '{tmp_path}/%s'\n"
    for wrong in ("other.key", "locked.key", "own.pem"):
        path.write_text("[door]\nlisten = '127.0.0.1:1'\n" + pair % wrong)
        told = command("door", "--config", path, status=2)
        assert told.startswith("pool: door.certificate: ")
        assert told.count("\n") == 1
    trusted = ssl.create_default_context(cafile=tmp_path / "own.pem")
    bare = str(Path(__file__).with_name("bare.py"))
    with start_door(running, pair % "own.key", bare) as door, ExitStack() as stack:

        def answers() -> bool:
            with suppress(httpx.TransportError):
                return httpx.post(f"https://{door.address}/echo", content=bytes(3_000_000), verify=trusted).is_success
            return False

        def is_full() -> bool:
            for _ in range(100):
                peer = stack.enter_context(connected(door.address))
                peer.sendall(b"\x16\x03\x01\x02\x00\x01\x00")  # so a handshake begins
            return not answers()

        until(is_full, "nobody comes in while so many begin")
        until(answers, "they are left, and somebody comes in")

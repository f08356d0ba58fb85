"""Key files, the folder of who may enter, and which keys a client uses."""

import os
import re
import stat
from pathlib import Path

import pytest

from pool import Client
from pool.client.peer import Peer
from pool.config import parse_settings
from pool.errors import InvalidConfig, InvalidInput
from pool.keys import KeyFolder, keys_for, make_pair, named, read_pair, read_public

USER = os.geteuid()
ELSEWHERE = "tcp://192.0.2.1:5555"
STRANGE_NAMES = ["", "a/b", "../a", "a\nb", "a\x1b[2J", "a\0b", "ä", ".a", "a" * 65, "a b"]


# --- files


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_a_secret_key_is_for_its_owner_alone_whatever_the_umask_is(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        public, secret = make_pair(tmp_path, "alice")
    finally:
        os.umask(before)
    assert stat.S_IMODE(secret.stat().st_mode) == 0o600
    assert stat.S_IMODE(public.stat().st_mode) == 0o644
    pair = read_pair(secret, USER)
    assert read_public(public, USER) == read_public(secret, USER) == pair.public
    assert len(pair.public) == len(pair.secret) == 40
    assert pair.secret not in repr(pair)
    assert pair.secret not in public.read_text()


def test_pyzmq_reads_the_files_too(tmp_path: Path) -> None:
    from zmq.auth import load_certificate

    public, secret = make_pair(tmp_path, "alice")
    pair = read_pair(secret, USER)
    assert load_certificate(public) == (pair.public.encode(), None)
    assert load_certificate(secret) == (pair.public.encode(), pair.secret.encode())


def test_a_key_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    public, secret = make_pair(tmp_path, "alice")
    before = secret.read_text()
    public.unlink()
    with pytest.raises(InvalidConfig, match="is there already"):
        make_pair(tmp_path, "alice")
    assert secret.read_text() == before
    assert not public.exists()


def test_a_key_is_made_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(OSError, match="No space"):
        make_pair(tmp_path, "alice")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_names_of_keys_are_plain(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a name") as caught:
        make_pair(tmp_path, name)
    assert str(caught.value).isprintable()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("content", "mode", "what"),
    [
        (None, 0o644, r"others can open it; run chmod 0600"),
        ("", 0o600, "has no secret key"),
        ("\xff" * 3000, 0o600, "is not a key file"),
        ("x" * 5000, 0o600, "is not a key file"),
        ('secret-key = "' + "a" * 39 + '"', 0o600, "has no secret key"),
        ('public-key = "' + "a" * 40 + '"', 0o600, "has no secret key"),
    ],
)
def test_what_is_no_secret_key_is_refused(tmp_path: Path, content: str | None, mode: int, what: str) -> None:
    _, secret = make_pair(tmp_path, "alice")
    if content is not None:
        secret.write_text(content)
    secret.chmod(mode)
    with pytest.raises(InvalidConfig, match=what):
        read_pair(secret, USER)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nowhere", Path("a\0b")):
        with pytest.raises(InvalidConfig, match="key file"):
            read_pair(path, USER)


# --- the folder


def test_who_is_in_the_folder_may_enter_by_his_key_alone(tmp_path: Path) -> None:
    alice, _ = make_pair(tmp_path, "alice")
    stranger, _ = make_pair(tmp_path / "elsewhere", "stranger")
    folder = KeyFolder(tmp_path, USER)
    entrant = folder.find(read_public(alice, USER))
    assert entrant is not None
    assert entrant.name == "alice"
    assert entrant.may_stay
    for other in (read_public(stranger, USER), "alice", "", "None"):
        assert folder.find(other) is None


def test_a_key_that_is_taken_away_or_replaced_may_not_stay(tmp_path: Path) -> None:
    path, _ = make_pair(tmp_path, "alice")
    public, text = read_public(path, USER), path.read_text()
    folder = KeyFolder(tmp_path, USER)
    entrant = folder.find(public)
    assert entrant is not None
    path.rename(tmp_path / "away")
    assert not entrant.may_stay
    assert folder.find(public) is None
    (tmp_path / "away").rename(path)
    assert entrant.may_stay
    other, _ = make_pair(tmp_path / "elsewhere", "alice")
    other.rename(path)
    assert not entrant.may_stay
    assert folder.find(public) is None
    assert folder.find(read_public(path, USER)) is not None
    path.write_text(text)


def test_the_folder_is_read_again_when_it_changes_and_no_more_often_than_its_clock_says(tmp_path: Path) -> None:
    now = 0.0
    folder = KeyFolder(tmp_path, USER, lambda: now)
    reads = 0
    read = folder.read

    def counted() -> object:
        nonlocal reads
        reads += 1
        return read()

    folder.read = counted  # type: ignore[method-assign, assignment]
    for _ in range(1000):
        assert folder.find("a" * 40) is None
    assert reads == 1
    now += 1.0
    assert folder.find("a" * 40) is None
    assert reads == 2
    path, _ = make_pair(tmp_path, "alice")
    os.utime(tmp_path, (1.0, 1.0))  # another instant than before, whatever the clock of files is
    assert folder.find(read_public(path, USER)) is not None


def test_a_file_that_opens_and_cannot_be_read_lets_nobody_in_and_keeps_nobody_out(tmp_path: Path) -> None:
    """As on a disk that fails; this one has nothing at its first byte."""
    make_pair(tmp_path, "alice")
    (tmp_path / "broken.key").symlink_to("/proc/self/mem")
    folder = KeyFolder(tmp_path, os.geteuid())
    assert [entrant.name for entrant in folder.read()] == ["alice"]
    assert "cannot be read: Input/output error" in folder.unfit[str(tmp_path / "broken.key")]


def test_a_file_that_others_could_have_written_lets_nobody_in_and_keeps_nobody_out(tmp_path: Path) -> None:
    bad, _ = make_pair(tmp_path, "bad")
    good, _ = make_pair(tmp_path, "good")
    bad.chmod(0o666)
    (tmp_path / "odd\x1b[2J.key").write_text(good.read_text())
    (tmp_path / "folder.key").mkdir()
    folder = KeyFolder(tmp_path, USER)
    assert [entrant.name for entrant in folder.read()] == ["good"]
    assert len(folder.unfit) == 3
    assert "others can write it" in folder.unfit[str(bad)]
    assert all(why.isprintable() for why in folder.unfit.values())
    tmp_path.chmod(0o777)
    assert not folder.read()
    with pytest.raises(InvalidConfig, match="others can write it"):
        folder.check()
    tmp_path.chmod(0o700)


# --- a client's keys


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for variable in ("POOL_KEY", "POOL_SERVER_KEY", "POOL_ENDPOINT"):
        monkeypatch.delenv(variable, raising=False)
    for name in ("alice", "bob", "lab", "other"):
        make_pair(tmp_path / "pool", name)
    return tmp_path / "pool"


def profile(keys: Path, text: str) -> None:
    (keys / "pools.toml").write_text(text)


def test_another_machine_is_not_spoken_to_without_keys(keys: Path) -> None:
    for endpoint in (ELSEWHERE, "tcp://gpu.example:5555", "tcp://[2001:db8::1]:5555", "tcp://0.0.0.0:5555"):
        with pytest.raises(InvalidConfig, match=r"needs keys: give key \(or \$POOL_KEY\) and server_key"):
            Peer.of(endpoint, 1.0, 1.0)
        with pytest.raises(InvalidConfig, match=r"needs keys: give server_key"):
            Peer.of(endpoint, 1.0, 1.0, keys / "alice.key_secret")
    for endpoint in ("tcp://127.0.0.1:5555", "tcp://[::1]:5555", "tcp://localhost:5555", "ipc:///p.sock", "name"):
        assert Peer.of(endpoint, 1.0, 1.0).keys is None
    with pytest.raises(InvalidConfig, match="keys are for tcp"):
        Peer.of("ipc:///p.sock", 1.0, 1.0, keys / "alice.key_secret", keys / "lab.key")


def test_arguments_come_before_profiles_and_those_before_the_environment(
    keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {name: read_pair(keys / f"{name}.key_secret", USER) for name in ("alice", "bob")}
    monkeypatch.setenv("POOL_KEY", str(keys / "bob.key_secret"))
    monkeypatch.setenv("POOL_SERVER_KEY", str(keys / "other.key"))
    found = Peer.of(ELSEWHERE, 1.0, 1.0).keys
    assert found is not None
    assert (found.own, found.server) == (own["bob"], read_public(keys / "other.key", USER))
    profile(keys, f'[lab]\nendpoint = "{ELSEWHERE}"\nkey = "alice.key_secret"\nserver_key = "lab.key"\n')
    for where in ("lab", ELSEWHERE):
        peer = Peer.of(where, 1.0, 1.0)
        assert peer.keys is not None
        assert (peer.endpoint, peer.keys.own) == (ELSEWHERE, own["alice"])
        assert peer.keys.server == read_public(keys / "lab.key", USER)
    text = read_public(keys / "other.key", USER)
    given = Peer.of("lab", 1.0, 1.0, str(keys / "bob.key_secret"), text).keys
    assert given is not None
    assert (given.own, given.server) == (own["bob"], text)
    monkeypatch.setenv("POOL_ENDPOINT", "lab")
    assert Peer.of(None, 1.0, 1.0).endpoint == ELSEWHERE


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("[lab", "is not TOML"),
        ("lab = " + "[" * 100_000, "is not TOML"),
        ("lab = 1", "has no endpoint"),
        ("[lab]\nkey = 'x'", "has no endpoint"),
        ("[lab]\nendpoint = 'tcp://a:1'\nsecret = 'x'", "unknown key"),
        ("[lab]\nendpoint = 'tcp://a:1'\nkey = 1", "is not a text"),
        ("[lab]\nendpoint = 'tcp://a:1'\nkey = 'nowhere'\nserver_key = 'lab.key'", "cannot be read"),
    ],
)
def test_a_wrong_profile_is_told(keys: Path, text: str, what: str) -> None:
    profile(keys, text)
    with pytest.raises(InvalidConfig, match=what):
        Peer.of("lab", 1.0, 1.0)


@pytest.mark.timeout(20)
def test_a_pipe_in_the_place_of_the_profiles_holds_up_nobody(keys: Path) -> None:
    os.mkfifo(keys / "pools.toml", 0o600)
    assert named("lab", os.environ, USER) is None


def test_a_profile_that_others_could_have_written_is_refused(keys: Path) -> None:
    profile(keys, f'[lab]\nendpoint = "{ELSEWHERE}"\n')
    (keys / "pools.toml").chmod(0o666)
    with pytest.raises(InvalidConfig, match="others can write it"):
        named("lab", os.environ, USER)


def test_a_profile_without_a_known_form_of_endpoint(keys: Path) -> None:
    profile(keys, '[lab]\nendpoint = "http://a"\n')
    with pytest.raises(InvalidInput, match="is no endpoint"):
        Peer.of("lab", 1.0, 1.0)
    assert keys_for("ipc:///a", None, None, None, os.environ, USER) is None


# --- [security]


def test_a_public_address_needs_keys_and_the_two_commands_are_told(tmp_path: Path) -> None:
    for endpoint in ("tcp://0.0.0.0:5555", "tcp://192.0.2.1:5555", "tcp://[::]:5555", "tcp://[2001:db8::1]:*"):
        with pytest.raises(InvalidConfig) as caught:
            parse_settings({"pool": {"listen": [endpoint]}}, "config", tmp_path)
        assert str(caught.value).startswith(
            f"config: [pool] listen[0]: {endpoint!r} can be reached from other machines"
        )
        commands = re.findall("`pool (keys new [^`]+)`", str(caught.value))
        assert commands == ["keys new server --folder keys", "keys new NAME --folder keys/clients"]
    # What is told mends it.
    make_pair(tmp_path / "keys", "server")
    make_pair(tmp_path / "keys/clients", "alice")
    section = {"key": "keys/server.key_secret", "clients": "keys/clients"}
    settings = parse_settings({"pool": {"listen": [endpoint]}, "security": section}, "config", tmp_path)
    assert settings.security is not None
    assert settings.security.key.pair == read_pair(tmp_path / "keys/server.key_secret", USER)
    assert settings.security.key.pair.secret not in f"{settings!r}{settings.model_dump()}"


def test_wrong_keys_of_the_pool_are_told_at_their_key(tmp_path: Path) -> None:
    make_pair(tmp_path, "server")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for section, what in (
        ({"key": "server.key", "clients": "."}, r"\[security\] key: .* has mode 0644"),
        ({"key": "nowhere", "clients": "."}, r"\[security\] key: .*nowhere cannot be read"),
        ({"key": 1, "clients": "."}, r"\[security\] key: 1 is not a path"),
        ({"clients": "."}, r"\[security\] key: is missing"),
        ({"key": "server.key_secret"}, r"\[security\] clients: is missing"),
        ({"key": "server.key_secret", "clients": "nowhere"}, r"\[security\] clients: .*mkdir -m 0700"),
        ({"key": "server.key_secret", "clients": "open"}, r"\[security\] clients: .*others can write it"),
        ({"key": "server.key_secret", "clients": "server.key"}, r"\[security\] clients: .*is not a folder"),
    ):
        with pytest.raises(InvalidConfig, match=what):
            parse_settings({"security": section}, "config", tmp_path)


def test_of_several_pools_those_of_other_machines_get_the_keys(tmp_path: Path) -> None:
    (_, secret), (server, _) = (sorted(make_pair(tmp_path, name), key=str) for name in ("alice", "gpus"))
    endpoints = ["tcp://127.0.0.1:5555", f"ipc://{tmp_path}/p.sock"]
    with Client(endpoints, key=secret, server_key=server) as client:
        peers = [each._peer for each in client.pools]
    assert [each.endpoint for each in peers] == endpoints
    assert [each.keys is not None for each in peers] == [True, False]

"""`[gateway]` and `[[client]]`: what they may say, how mistakes are told, and what a process is told of them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pool.config import load_settings, parse_settings, tokens_path, with_gateway
from pool.errors import InvalidConfig
from pool.gateway.settings import read_settings
from pool.kept import add_token, read_tokens
from pool.plan.changes import Reach, differences
from pool.processes.gateways.gateways import _in_memory
from pool.wire.codec import pack
from pool.wire.gateway import GatewayLimits, GatewaySettings


def mistakes(base: Path, text: str) -> list[str]:
    file = base / "pool.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfig) as caught:
        load_settings(file)
    return [line.removeprefix(str(file)) for line in str(caught.value).splitlines()]


def test_without_a_section_there_is_none() -> None:
    assert parse_settings({}, "x", Path("/")).gateway_message("ipc:///p") is None
    assert parse_settings({"client": [{"name": "a"}]}, "x", Path("/")).gateway_message("ipc:///p") is None


def test_an_empty_section_is_on_this_machine_alone_with_the_defaults() -> None:
    told = parse_settings({"gateway": {}}, "x", Path("/")).gateway_message("ipc:///p")
    assert told == GatewaySettings(("ipc:///p",), "127.0.0.1:8000", limits=GatewayLimits())
    assert told.url == "http://127.0.0.1:8000"


def test_each_key_arrives_in_the_process(tmp_path: Path) -> None:
    token = add_token(tmp_path / "tokens", "alice")
    config = tmp_path / "pool.toml"
    config.write_text(
        """
        [pool]
        drain_timeout = "7s"
        [gateway]
        listen = "[::]:8443"
        processes = 3
        tokens = "tokens"
        hosts = ["GPU.example"]
        origins = ["https://Dash.example"]
        repository_control = true
        max_body = "8MiB"
        max_connections = 9
        advanced = { max_headers = "4KiB", read_timeout = "2s", idle_timeout = "250ms" }
        [[client]]
        name = "alice"
        models = ["digits"]
        rate = 50
        max_jobs = 3
        max_bytes = "1KiB"
        [[client]]
        name = "bob"
        """
    )
    told = load_settings(config).gateway_message("ipc:///p")
    assert told is not None
    assert told == GatewaySettings(
        ("ipc:///p",),
        "[::]:8443",
        processes=3,
        tokens=read_tokens(tmp_path / "tokens"),
        hosts=("gpu.example",),
        origins=("https://dash.example",),
        repository_control=True,
        limits=GatewayLimits(8 << 20, 8 << 20, 4 << 10, 9, 2.0, 0.25),
        drain_timeout_s=7.0,
    )
    assert token not in repr(told)
    with _in_memory(pack(told)) as descriptor:
        assert read_settings(os.dup(descriptor)) == told


@pytest.mark.parametrize("listen", ["127.0.0.1:8000", "127.8.8.8:1", "[::1]:8000"])
def test_an_address_of_this_machine_alone_needs_no_token(listen: str) -> None:
    assert parse_settings({"gateway": {"listen": listen}}, "x", Path("/")).gateway is not None


@pytest.mark.parametrize("listen", ["0.0.0.0:80", "[::]:80", "192.0.2.1:8000"])
def test_another_address_needs_tokens_or_says_that_it_is_insecure(listen: str, tmp_path: Path) -> None:
    [told] = mistakes(tmp_path, f'[pool]\nlanes = 2\n\n[gateway]\nprocesses = 2\nlisten = "{listen}"\n')
    assert told == (
        f":6: [gateway] listen: '{listen}' can be reached from other machines, and nobody is asked for a token;"
        " set `tokens` (`pool gateway token NAME` makes one), or write insecure = true"
    )
    assert parse_settings({"gateway": {"listen": listen, "insecure": True}}, "x", Path("/")).gateway is not None
    add_token(tmp_path / "tokens", "alice")
    assert parse_settings({"gateway": {"listen": listen, "tokens": "tokens"}}, "x", tmp_path).gateway is not None


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('listen = "localhost:80"', "listen: 'localhost:80' is not an address with a port; write an address in num"),
        ('listen = "127.0.0.1"', "listen: '127.0.0.1' is not an address with a port"),
        ('listen = "127.0.0.1:65536"', "listen: '127.0.0.1:65536' is not an address with a port"),
        ("listen = 8000", "listen: 8000 is not a text"),
        ("processes = 0", "processes: 0 is too small; write 1 or more"),
        ("processes = 65", "processes: 65 is too large"),
        ('tokens = "nowhere"', "tokens: there is no file {base}/nowhere; `pool gateway token NAME` makes it"),
        ("tokens = 3", 'tokens: 3 is not a path; write "off", or the path of a file'),
        ('certificate = "pool.toml"', "certificate: is set without `key`; write both, or neither"),
        ('key = "key"', "key: is set without `certificate`; write both, or neither"),
        ('key = "nowhere"', "key: {base}/nowhere cannot be read: No such file or directory"),
        ('key = "open"', "key: {base}/open belongs to uid {uid} and has mode 0644, so others can open it"),
        ('certificate = "pool.toml"\nkey = "key"', "certificate: {base}/pool.toml with the key {base}/key: "),
        ('hosts = ["a b"]', "hosts: 'a b' is not the name of a host"),
        ('hosts = ["a:80"]', "hosts: 'a:80' is not the name of a host; write it without a port"),
        ('origins = ["example.org"]', "origins: 'example.org' is not an origin"),
        ('max_body = "4 gigs"', "max_body: '4 gigs' is not a size"),
        ("maxbody = 3", "maxbody: unknown key; did you mean 'max_body'?"),
        ("advanced = { idle = 3 }", "advanced.idle: unknown key; write one of max_json"),
        ('advanced = { read_timeout = "0s" }', "advanced.read_timeout: the duration is zero"),
        ("advanced = 3", "advanced: is not a table; write one such as { idle_timeout ="),
    ],
)
def test_a_mistake_is_told_with_file_line_and_key(written: str, told: str, tmp_path: Path) -> None:
    for name, mode in (("key", 0o600), ("open", 0o644)):
        (tmp_path / name).write_text("no key")
        (tmp_path / name).chmod(mode)
    [line] = mistakes(tmp_path, f"[gateway]\n{written}\n")
    assert line.startswith(":2: [gateway] " + told.replace("{base}", str(tmp_path)).replace("{uid}", str(os.getuid())))


@pytest.mark.parametrize(
    ("client", "told"),
    [
        ({}, "client[0].name: is missing; write a name"),
        ({"name": "a b"}, "client[0].name: 'a b' is not a name"),
        ({"name": "a", "models": "digits"}, "client[0].models: 'digits' does not name models; write \"all\", or a"),
        (
            {"name": "a", "rate": 0},
            'client[0].rate: 0 is not a number from 1e-6 to 1e9; write "unlimited", or one such as 50',
        ),
        (
            {"name": "a", "rate": 5e-324},
            'client[0].rate: 5e-324 is not a number from 1e-6 to 1e9; write "unlimited", or one such as 50',
        ),
        ({"name": "a", "max_jobs": 0.5}, "client[0].max_jobs: 0.5 is not a whole number from 1"),
        ({"name": "a", "key": "x"}, "client[0].key: unknown key"),
    ],
)
def test_a_mistake_of_a_client_is_told(client: Mapping[str, Any], told: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        parse_settings({"client": [client]}, "x", Path("/"))
    assert str(caught.value).startswith(f"x: {told}")


def test_two_clients_have_two_names() -> None:
    with pytest.raises(InvalidConfig, match=r"client\[1\].name: client\[0\] also has the name 'a'"):
        parse_settings({"client": [{"name": "a"}, {"name": "a"}]}, "x", Path("/"))


# --- a change of them


def dump(base: Path, **sections: object) -> dict[str, Any]:
    return parse_settings(sections, "x", base).model_dump()


def test_a_running_pool_takes_what_is_changed_but_for_where_it_listens(tmp_path: Path) -> None:
    before = dump(tmp_path, gateway={}, client=[{"name": "a"}, {"name": "b"}])
    section = {"listen": "[::1]:1", "max_body": "1MiB", "advanced": {"idle_timeout": 3}}
    clients = [{"name": "a", "rate": 3, "models": ["m"]}, {"name": "c"}]
    changes = differences(before, dump(tmp_path, gateway=section, client=clients))
    assert {change.line: change.reach for change in changes} == {
        '[gateway] listen: "127.0.0.1:8000" → "[::1]:1"': Reach.POOL,
        "[gateway] max_body: 64MiB → 1MiB": Reach.RUNNING,
        "[gateway] advanced idle_timeout: 75s → 3s": Reach.RUNNING,
        '[[client]] a models: all → ["m"]': Reach.RUNNING,
        "[[client]] a rate: unlimited → 3.0": Reach.RUNNING,
        "[[client]] b: is gone": Reach.RUNNING,
        "[[client]] c: is new": Reach.RUNNING,
    }


def test_a_gateway_that_comes_or_goes_takes_a_new_pool(tmp_path: Path) -> None:
    [comes] = differences(dump(tmp_path), dump(tmp_path, gateway={}))
    [goes] = differences(dump(tmp_path, gateway={}), dump(tmp_path))
    assert (comes.line, comes.reach) == ("[gateway]: is new", Reach.POOL)
    assert (goes.line, goes.reach) == ("[gateway]: is gone", Reach.POOL)


def test_another_token_in_the_same_file_is_a_change_that_shows_no_digest(tmp_path: Path) -> None:
    add_token(tmp_path / "tokens", "alice")
    before = dump(tmp_path, gateway={"tokens": "tokens"})
    assert differences(before, dump(tmp_path, gateway={"tokens": "tokens"})) == []
    (tmp_path / "tokens").unlink()
    add_token(tmp_path / "tokens", "alice")
    [change] = differences(before, dump(tmp_path, gateway={"tokens": "tokens"}))
    assert change.reach is Reach.RUNNING
    assert change.line.count("(1 token, ") == 2
    [token] = read_tokens(tmp_path / "tokens")
    assert token.digest.hex() not in repr(change)
    assert str(token.digest) not in repr(change)


# --- what `pool gateway` makes of them


def test_options_win_over_the_file_and_the_rest_of_it_stays(tmp_path: Path) -> None:
    add_token(tmp_path / "tokens", "alice")
    settings = parse_settings({"gateway": {"tokens": "tokens", "max_body": "1MiB"}}, "x", tmp_path)
    told = with_gateway(settings, {"listen": "0.0.0.0:1"}, "pool gateway", Path("/")).gateway_message()
    assert told is not None
    assert (told.listen, told.limits.max_body_bytes) == ("0.0.0.0:1", 1 << 20)
    assert told.tokens == read_tokens(tmp_path / "tokens")
    with pytest.raises(InvalidConfig, match=r"pool gateway: \[gateway\] listen: .* can be reached"):
        with_gateway(parse_settings({}, "x", Path("/")), {"listen": "0.0.0.0:1"}, "pool gateway", Path("/"))


def test_the_file_of_tokens_is_known_before_it_is_there(tmp_path: Path) -> None:
    config = tmp_path / "pool.toml"
    config.write_text('[gateway]\ntokens = "secret/tokens"\n')
    assert tokens_path(config) == tmp_path / "secret" / "tokens"
    config.write_text("[gateway]\n")
    assert tokens_path(config) is None
    config.write_text("[gateway\n")
    with pytest.raises(InvalidConfig, match="is not TOML"):
        tokens_path(config)

"""`pool gateway` in the foreground, and `pool gateway token`."""

import json
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pool.kept import read_tokens
from support.commands import run_command
from support.foreground_gateway import foreground, url_of
from support.pool_process import PoolProcess
from support.processes import alive, children, eventually

pytestmark = pytest.mark.gateway

END_S = 30.0


def curl(url: str, *headers: str) -> int:
    """Another program's view of it."""
    code = "import sys, urllib.request as u\n"
    code += "r = u.Request(sys.argv[1], headers=dict(h.split(': ') for h in sys.argv[2:]))\n"
    code += "try: print(u.urlopen(r, timeout=20).status)\nexcept u.HTTPError as error: print(error.code)"
    done = subprocess.run([sys.executable, "-c", code, url, *headers], capture_output=True, text=True, timeout=END_S)
    return int(done.stdout or done.stderr)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("processes", [1, 2])
def test_it_serves_until_it_is_told_to_end(
    pool: PoolProcess, tmp_path: Path, processes: int, number: signal.Signals
) -> None:
    options = "--listen", "127.0.0.1:0", "--processes", str(processes), "--endpoint", pool.endpoint
    with foreground(tmp_path, *options) as (process, log):
        url = url_of(log, process)
        assert url in log.read_text()
        assert curl(f"{url}/nothing") == 404
        tended = children(process.pid)
        assert len(tended) == (0 if processes == 1 else processes), "one needs no other process"
        process.send_signal(number)
        assert process.wait(END_S) == 0, log.read_text()
        assert log.read_text().splitlines()[-1].endswith("gateway: stopped")
        assert not any(map(alive, tended))


def test_one_of_several_that_dies_is_followed_and_the_parents_end_is_that_of_all(
    pool: PoolProcess, tmp_path: Path
) -> None:
    options = "--listen", "127.0.0.1:0", "--processes", "2", "--endpoint", pool.endpoint
    with foreground(tmp_path, *options) as (process, log):
        url = url_of(log, process)
        first = children(process.pid)
        os.kill(first[0], signal.SIGKILL)
        eventually(lambda: log.read_text().count("serves at") == 3, END_S, log.read_text)
        assert curl(f"{url}/nothing") == 404
        second = children(process.pid)
        assert len(second) == 2
        process.kill()
        process.wait(END_S)
        eventually(lambda: not any(map(alive, second)))


def test_options_win_over_the_configuration_of_this_folder(pool: PoolProcess, tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        f'[pool]\nendpoint = "{pool.endpoint}"\n[gateway]\nlisten = "0.0.0.0:1"\ntokens = "tokens"\nprocesses = 2\n'
    )
    made = subprocess.run(
        [sys.executable, "-P", "-m", "pool", "gateway", "token", "alice"], cwd=tmp_path, capture_output=True, text=True
    )
    token = made.stdout.strip()
    assert made.returncode == 0
    assert made.stderr == f"{tmp_path}/tokens has the digest of this token; `pool reload` makes it valid\n"
    assert [each.name for each in read_tokens(tmp_path / "tokens")] == ["alice"]
    assert token not in (tmp_path / "tokens").read_text()
    with foreground(tmp_path, "--listen", "127.0.0.1:0", "--processes", "1") as (process, log):
        url = url_of(log, process)
        assert children(process.pid) == []
        assert [curl(f"{url}/x"), curl(f"{url}/x", f"Authorization: Bearer {token}")] == [401, 404]


def test_its_log_can_be_for_programs(pool: PoolProcess, tmp_path: Path) -> None:
    options = "--listen", "127.0.0.1:0", "--log-format", "json", "--endpoint", pool.endpoint
    with foreground(tmp_path, *options) as (process, log):
        eventually(lambda: "gateway_ready" in log.read_text(), END_S, log.read_text)
        process.terminate()
        assert process.wait(END_S) == 0
        first, *_ = [json.loads(line) for line in log.read_text().splitlines()]
        assert first["event"] == "gateway_ready"
        assert first["url"].startswith("http://127.0.0.1:")
        assert first["endpoint"] == pool.endpoint


@pytest.mark.parametrize(
    ("options", "status", "told"),
    [
        (("--listen", "0.0.0.0:0"), 2, "pool: pool gateway: [gateway] listen: '0.0.0.0:0' can be reached from other"),
        (("--listen", "x"), 2, "pool: pool gateway: [gateway] listen: 'x' is not an address with a port"),
        (
            ("--listen", "192.0.2.1:80", "--insecure"),
            1,
            "pool: the gateway cannot listen at 192.0.2.1:80: this",
        ),
        (("--tokens", "nowhere"), 2, "pool: pool gateway: [gateway] tokens: there is no file "),
    ],
)
def test_what_cannot_be_served_is_one_clear_line(options: tuple[str, ...], status: int, told: str) -> None:
    done = run_command(None, "gateway", *options)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == 1


def test_a_token_needs_a_name_and_a_file(tmp_path: Path) -> None:
    done = run_command(None, "gateway", "token", "alice")
    assert done.returncode == 2
    assert "name the file with --tokens, or with `tokens` in [gateway]" in done.stderr
    done = run_command(None, "gateway", "token", "a b", "--tokens", str(tmp_path / "tokens"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "'a b' is not a name" in done.stderr
    assert not (tmp_path / "tokens").exists()
    done = run_command(None, "gateway", "token", "alice", "--tokens", str(tmp_path / "no" / "tokens"))
    assert (done.returncode, done.stdout) == (1, "")
    assert "No such file or directory" in done.stderr


# --- what `pool check` says of it


def test_a_check_says_where_it_would_listen_and_who_would_be_left_out(tmp_path: Path) -> None:
    config = tmp_path / "pool.toml"
    rest = '[pool]\ndevices = ["cpu"]\n[[model]]\nname = "echo"\npath = "stub:echo"\n[[client]]\nname = "bob"\n'

    def check(*options: str) -> str:
        done = run_command(None, "check", "--config", str(config), *options)
        assert done.returncode == 0, done.stderr
        return " ".join(done.stdout.split())

    config.write_text(rest)
    assert "gateway" not in check()
    assert "hint: nobody comes as [[client]] bob: it has no users, no token and no key here" in check()
    config.write_text(f"[gateway]\n{rest}")
    assert "gateway http://127.0.0.1:8000, nobody needs a token" in check()
    assert run_command(None, "gateway", "token", "alice", "--tokens", str(tmp_path / "tokens")).returncode == 0
    config.write_text(f'[gateway]\ntokens = "tokens"\n{rest}')
    assert "gateway http://127.0.0.1:8000, with a token of alice" in check()
    assert "hint: nobody comes as [[client]] bob" in check()
    config.write_text(f'[gateway]\ntokens = "tokens"\n{rest}users = [0]\n')
    assert "hint: nobody comes" not in check()
    assert json.loads(check("--json"))["gateway"] == "http://127.0.0.1:8000"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_unit_for_another_user_takes_his_tokens_and_nobody_elses(tmp_path: Path) -> None:
    config, tokens, nobody = tmp_path / "pool.toml", tmp_path / "tokens", pwd.getpwnam("nobody").pw_uid
    models = '[pool]\ndevices = ["cpu"]\n[[model]]\nname = "echo"\npath = "stub:echo"\n'
    config.write_text(f'{models}[gateway]\ntokens = "tokens"\n')
    tokens.touch(0o600)
    os.chown(tokens, nobody, -1)
    done = run_command(None, "systemd", "print", "--as", "nobody", "--config", str(config))
    assert done.returncode == 0, done.stderr
    assert "User=nobody\n" in done.stdout
    os.chown(tokens, nobody - 1, -1)
    done = run_command(None, "systemd", "print", "--as", "nobody", "--config", str(config))
    assert done.returncode == 2
    assert f"tokens belongs to uid {nobody - 1}; give a file that belongs to uid {nobody} or to root" in done.stderr


def test_it_may_be_stopped_while_it_looks_for_a_cluster(tmp_path: Path) -> None:
    """There is none, and the look for it takes a minute."""
    options = "--listen", "127.0.0.1:0", "--endpoint", "pool+ray://127.0.0.1:1"
    with foreground(tmp_path, *options) as (process, log):
        eventually(lambda: children(process.pid) != [], END_S, log.read_text)
        process.terminate()
        assert process.wait(END_S) == 0, log.read_text()
        assert log.read_text().splitlines()[-1].endswith("gateway: stopped")


@pytest.mark.parametrize(
    ("endpoints", "told"),
    [
        (("tcp://example.org:1", "ipc:///a"), "tcp://example.org:1"),
        (("a b", "ipc:///a"), "'a b' is no endpoint"),
        (("pool+ray://auto", "ipc:///a"), "stands for all pools of a cluster; give it alone"),
    ],
)
def test_what_is_wrong_with_one_of_several_pools_is_told_at_once(endpoints: tuple[str, ...], told: str) -> None:
    options = [text for each in endpoints for text in ("--endpoint", each)]
    done = run_command(None, "gateway", "--listen", "127.0.0.1:0", *options)
    assert done.returncode != 0
    assert told in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr

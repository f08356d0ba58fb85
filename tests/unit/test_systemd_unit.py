"""The unit: what stands in it, what systemd itself reads in it, and the commands that print and install it."""

import errno
import os
import pwd
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pool.cli import systemd as command
from pool.errors import InvalidConfig
from pool.systemd.unit import TEMPLATE_NAME, UNIT_NAME, unit
from support.commands import in_process

ME = pwd.getpwuid(os.getuid()).pw_name
EXPOSURE = 49  # tenths, the most that `systemd-analyze security` calls OK

analyze = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def made(**different: Any) -> str:
    given: dict[str, Any] = {
        "executable": "/opt/pool/bin/python",
        "config": "/etc/pool/config.toml",
        "user_unit": False,
        "user": "inference",
        "start_s": 1620.0,
        "stop_s": 45.2,
    }
    return unit(**{**given, **different})


def directives(text: str) -> dict[str, list[str]]:
    """Each directive with all its values, comments apart."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("user_unit", [False, True])
def test_how_the_pool_is_run_watched_and_ended(user_unit: bool) -> None:
    said = directives(made(user_unit=user_unit))
    expected = {
        "Type": "notify",
        "NotifyAccess": "main",
        "ExecStart": "/opt/pool/bin/python -P -m pool start --config /etc/pool/config.toml",
        "KillMode": "mixed",
        "TimeoutStartSec": "1630",
        "TimeoutStopSec": "56",
        "WatchdogSec": "30",
        "Restart": "on-failure",
        "RestartSec": "5",
        "RestartPreventExitStatus": "2",
        "StartLimitIntervalSec": "300",
        "StartLimitBurst": "3",
        "OOMPolicy": "continue",
        "UMask": "0077",
        "NoNewPrivileges": "yes",
        "SystemCallFilter": "@system-service",
        "SystemCallArchitectures": "native",
        "RestrictAddressFamilies": "AF_UNIX AF_INET AF_INET6 AF_NETLINK",
        **dict.fromkeys(("RestrictSUIDSGID", "RestrictRealtime", "RestrictNamespaces", "LockPersonality"), "yes"),
    }
    assert {key: said[key] for key in expected} == {key: [value] for key, value in expected.items()}
    assert not {"MemoryDenyWriteExecute", "PrivateDevices", "ProcSubset", "PrivateUsers"} & said.keys()


def test_a_system_unit_is_shut_in() -> None:
    text = made(writable=["/srv/pool"])
    said = directives(text)
    expected = {
        "User": "inference",
        "WantedBy": "multi-user.target",
        "RuntimeDirectory": "pool",
        "RuntimeDirectoryMode": "0700",
        "StateDirectory": "pool",
        "CacheDirectory": "pool",
        "Environment": "CUDA_CACHE_PATH=%C/pool",
        "CapabilityBoundingSet": "",
        "ProtectSystem": "strict",
        "ProtectHome": "read-only",
        "ReadWritePaths": "-/srv/pool",
        "DevicePolicy": "closed",
        "DeviceAllow": "char-nvidia* rw",
        **dict.fromkeys(("PrivateTmp", "ProtectClock", "ProtectControlGroups", "ProtectHostname"), "yes"),
        **dict.fromkeys(("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables"), "yes"),
    }
    assert {key: said[key] for key in expected} == {key: [value] for key, value in expected.items()}
    for exception in ("MemoryDenyWriteExecute", "PrivateDevices", "ProcSubset", "PrivateUsers", "PrivateNetwork"):
        assert re.search(rf"^# .*{exception}\b", text, re.MULTILINE), f"no reason is given for {exception}"


def test_a_user_unit_asks_nothing_that_its_manager_cannot_do() -> None:
    said = directives(made(user_unit=True, writable=["/srv/pool"], private_tmp=True))
    assert said["WantedBy"] == ["default.target"]
    privileged = re.compile(r"User|Protect|Private|Device|Capability|Ambient|ReadWrite|\w+Directory|Environment")
    assert [key for key in said if privileged.match(key)] == []


@pytest.mark.parametrize("user_unit", [False, True])
def test_a_template_says_the_name_wherever_two_pools_would_meet(user_unit: bool) -> None:
    said = directives(made(template=True, user_unit=user_unit, config="/etc/my pools/%x/gpu.toml"))
    command = "/opt/pool/bin/python -P -m pool"
    assert said["ExecStart"] == [f'{command} start --config "/etc/my pools/%%x/%i.toml" --name %i']
    assert said["ExecReload"] == [f"{command} reload --name %i"]
    own = [said.get(f"{kind}Directory") for kind in ("Runtime", "State", "Cache")]
    assert own == ([None] * 3 if user_unit else [["pool-%i"]] * 3)
    assert said["SyslogIdentifier"] == ["pool-%i"]


def test_a_group_may_pass_the_folder_and_the_pool_may_give_it_the_socket() -> None:
    said = directives(made(group="models"))
    assert (said["SupplementaryGroups"], said["RuntimeDirectoryMode"]) == (["models"], ["0711"])
    assert "SupplementaryGroups" not in directives(made())


def test_root_and_the_shared_tmp_are_said() -> None:
    assert not {"User", "PrivateTmp"} & directives(made(user=None, private_tmp=False)).keys()


def test_a_reload_is_asked_of_the_pool_where_it_is() -> None:
    reload = "/opt/pool/bin/python -P -m pool reload"
    assert directives(made())["ExecReload"] == [reload]
    elsewhere = directives(made(endpoint="ipc:///srv/50%n $x/p.sock"))
    assert elsewhere["ExecReload"] == [f'{reload} --endpoint "ipc:///srv/50%%n $$x/p.sock"']


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("/srv/plain-1.toml", "/srv/plain-1.toml"),
        ("/srv/a b", '"/srv/a b"'),
        ("/srv/50%n", '"/srv/50%%n"'),
        ("/srv/$HOME/${X}", "/srv/$$HOME/$${X}"),
        ('/srv/"q"', r'"/srv/\"q\""'),
        ("/srv/it's", '"/srv/it\'s"'),
        ("/srv/back\\", r'"/srv/back\\"'),
        ("/srv/é ;#", '"/srv/é ;#"'),
    ],
)
def test_the_configuration_is_one_word(path: str, word: str) -> None:
    assert directives(made(config=path))["ExecStart"][0].partition("--config ")[2] == word


def test_the_program_and_the_folders_are_quoted_by_their_own_rules() -> None:
    said = directives(made(executable="/opt/my %py/python", writable=["/srv/a $b", "/srv/c"]))
    assert said["ExecStart"][0].startswith('"/opt/my %%py/python" -P')
    assert said["ReadWritePaths"] == ['"-/srv/a $b"', "-/srv/c"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"executable": "python"},
        {"executable": "/opt/$x/python"},
        {"executable": "/opt/it's/python"},
        {"executable": "/opt/back\\slash"},
        {"executable": "/opt/two\nlines"},
        {"config": "/etc/pool/two\nExecStartPre=/bin/lines"},
        {"config": "/etc/\udcff"},
        {"user": "me\nExecStartPre=/bin/true"},
        {"writable": ["/srv/\t"]},
    ],
)
def test_what_cannot_be_said_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        made(**wrong)


# --- systemd's own judgement ------------------------------------------------------------------------------------------


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        yield Path(name)


@analyze
@pytest.mark.parametrize("name", [UNIT_NAME, TEMPLATE_NAME])
@pytest.mark.parametrize("user_unit", [False, True])
def test_systemd_finds_no_fault(folder: Path, user_unit: bool, name: str) -> None:
    odd = folder / 'con fig %n "q" $HOME.toml'
    text = made(
        executable=sys.executable,
        config=str(odd),
        user_unit=user_unit,
        user=ME,
        writable=[str(odd)],
        endpoint=f"ipc://{odd}",
        group="root",
        template=name == TEMPLATE_NAME,
    )
    (folder / name).write_text(text)
    whose = ["--user"] if user_unit else []
    done = subprocess.run(
        ["systemd-analyze", *whose, "verify", "--man=no", str(folder / name)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    about = [line for line in done.stderr.splitlines() if name.partition("@")[0] in line]
    assert (done.returncode, about) == (0, [])


@analyze
def test_systemd_calls_its_exposure_ok(folder: Path) -> None:
    (folder / UNIT_NAME).write_text(made(executable=sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", f"--threshold={EXPOSURE}", str(folder / UNIT_NAME)],
        capture_output=True,
        text=True,
        timeout=60,
    )
    if "unrecognized option" in done.stderr:
        pytest.skip("this systemd-analyze is older than 250")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "OK" in done.stdout.splitlines()[-1]


# --- the commands -----------------------------------------------------------------------------------------------------


@pytest.fixture
def config(folder: Path) -> str:
    (folder / "config.toml").write_text('[[model]]\nname = "echo"\npath = "stub:echo"\n')
    return str(folder / "config.toml")


@pytest.fixture
def home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(command, "SYSTEM_FOLDER", folder / "etc")
    return folder / "home"


def run(*argv: str) -> str:
    """What it prints where nothing is refused."""
    status, out, err = in_process("systemd", *argv)
    assert (status, err) == (0, "")
    return out


def refusal(status: int, *argv: str) -> str:
    """The last line of why it is refused."""
    found, out, err = in_process("systemd", *argv)
    assert (found, out) == (status, "")
    return err.splitlines()[-1]


def test_the_unit_is_printed_for_this_installation(config: str) -> None:
    said = directives(run("print", "--config", os.path.relpath(config), "--as", ME))
    assert said["ExecStart"] == [f"{sys.executable} -P -m pool start --config {config}"]
    assert said["User"] == [ME]
    assert (said["TimeoutStartSec"], said["TimeoutStopSec"]) == (["1690"], ["55"])
    assert "PrivateTmp" not in said  # the configuration lies in /tmp


def test_the_folders_of_the_configuration_are_writable(config: str, folder: Path) -> None:
    with open(config, "a") as file:
        file.write('[pool]\nendpoint = "ipc:///srv/pool/pool.sock"\nstate = "state"\n')
    said = directives(run("print", "--config", config, "--as", ME))
    assert said["ReadWritePaths"] == ["-/srv/pool", f"-{folder}/state"]
    assert said["ExecReload"][0].endswith(" -m pool reload --endpoint ipc:///srv/pool/pool.sock")


@pytest.mark.usefixtures("home")
def test_install_writes_once_and_overwrites_only_by_force(config: str, folder: Path) -> None:
    path = folder / "etc" / UNIT_NAME
    assert run("install", "--config", config, "--as", ME).splitlines() == [
        f"wrote {path}",
        "next:",
        "  systemctl daemon-reload",
        f"  systemctl enable --now {UNIT_NAME}",
        f"then, as {ME}: pool status",
    ]
    text = path.read_text()
    assert path.stat().st_mode & 0o777 == 0o644
    assert os.listdir(path.parent) == [UNIT_NAME]
    assert "already has this unit" in run("install", "--config", config, "--as", ME)
    path.write_text("another\n")
    assert "--force" in refusal(1, "install", "--config", config, "--as", ME)
    assert path.read_text() == "another\n"
    assert f"  systemctl restart {UNIT_NAME}" in run("install", "--config", config, "--as", ME, "--force").splitlines()
    assert path.read_text() == text


def test_a_unit_of_ones_own_is_installed_at_home(config: str, home: Path) -> None:
    path = home / ".config/systemd/user" / UNIT_NAME
    assert run("install", "--config", config, "--user").splitlines() == [
        f"wrote {path}",
        "next:",
        "  systemctl --user daemon-reload",
        f"  systemctl --user enable --now {UNIT_NAME}",
        "then: pool status",
    ]
    assert "WantedBy=default.target" in path.read_text()


@pytest.mark.usefixtures("home")
def test_a_pool_with_a_name_is_an_instance_of_a_template(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    path = folder / "etc" / TEMPLATE_NAME
    for name, models in (("a", 1), ("b", 2)):
        text = "".join(f'[[model]]\nname = "echo{number}"\npath = "stub:echo"\n' for number in range(models))
        Path(f"{name}.toml").write_text(f'[pool]\nendpoint = "ipc:///srv/ours.sock"\n{text}')
    assert run("install", "--name", "a", "--as", ME).splitlines() == [
        f"wrote {path}",
        "next:",
        "  systemctl daemon-reload",
        "  systemctl enable --now pool@a.service",
        f"then, as {ME}: pool status --name a",
    ]
    assert run("install", "--name", "b", "--config", "b.toml", "--as", ME).splitlines() == [
        f"{path} already has this unit",
        "next:",
        "  systemctl daemon-reload",
        "  systemctl enable --now pool@b.service",
        "  systemctl restart pool@b.service",
        f"then, as {ME}: pool status --name b",
    ]
    said = directives(path.read_text())
    assert said["ExecStart"][0].endswith(f' --config "{folder}/%i.toml" --name %i')
    assert "/srv" not in path.read_text(), "the name says where each of them listens"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--name", "b", "--config", "a.toml"], "rename a.toml to b.toml"),
        (["--name", "b"], "there is no file b.toml"),
        ([], "there is no file config.toml"),
        (["--name", "a b"], "is not a name"),
        (["--name", "../a"], "is not a name"),
        (["--name", "%i"], "is not a name"),
    ],
)
def test_a_name_has_its_own_file(folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], why: str) -> None:
    monkeypatch.chdir(folder)
    Path("a.toml").write_text('[[model]]\nname = "echo"\npath = "stub:echo"\n')
    assert why in refusal(2, "print", "--as", ME, *options)


def test_a_masked_unit_is_another_unit(config: str, home: Path) -> None:
    path = home / ".config/systemd/user" / UNIT_NAME
    path.parent.mkdir(parents=True)
    for target in ("/dev/null", "/nowhere"):
        path.symlink_to(target)
        assert "--force" in refusal(1, "install", "--config", config, "--user")
        path.unlink()


@pytest.mark.parametrize("options", [[], ["--user", "--as", ME], ["--as", "no-such-user"]])
def test_whose_unit_it_is_must_be_said(config: str, options: list[str]) -> None:
    refusal(2, "print", "--config", config, *options)


def test_a_refused_configuration_makes_no_unit(config: str, home: Path) -> None:
    Path(config).write_text("[pool]\nlane = 2\n")
    for name in ("print", "install"):
        assert refusal(2, name, "--config", config, "--user").startswith("pool: ")
    assert not home.exists()
    refusal(2, "print", "--config", config + ".not-there", "--user")


def test_a_write_that_fails_leaves_nothing_and_one_line(
    config: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / ".config/systemd/user"

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    assert (
        refusal(1, "install", "--config", config, "--user")
        == f"pool: {folder / UNIT_NAME} cannot be written: No space left on device"
    )
    assert list(folder.iterdir()) == []


def test_a_folder_in_its_place_is_let_be(config: str, home: Path) -> None:
    path = home / ".config/systemd/user" / UNIT_NAME
    path.mkdir(parents=True)
    assert "has a different unit" in refusal(1, "install", "--config", config, "--user")
    assert (
        refusal(1, "install", "--config", config, "--user", "--force")
        == f"pool: {path} cannot be written: Is a directory"
    )
    assert list(path.parent.iterdir()) == [path]
    path.parent.rename(path.parent.with_name("other"))
    path.parent.touch()
    assert refusal(1, "install", "--config", config, "--user") == f"pool: {path} cannot be read: Not a directory"

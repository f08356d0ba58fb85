"""What the doctor finds of a machine's limits: each check both ways, with the kernel's own files and calls."""

import ctypes
import os
import resource
import socket
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pool.config import Settings, parse_settings
from pool.doctor import Finding, Machine, Verdict, examine, machine, report
from pool.endpoint import EndpointLock

OK, WARNING, FAILED, CANNOT = Verdict.OK, Verdict.WARNING, Verdict.FAILED, Verdict.CANNOT
STUB = '[[model]]\nname = "a"\npath = "stub:echo"\n'


def settings(text: str = "") -> Settings:
    return parse_settings(tomllib.loads(f"{text}\n{STUB}"), "config.toml", Path("/"))


def seen(check: Callable[[Machine], Iterator[Finding]], root: Path = Path("/"), config: str = "") -> list[Finding]:
    return list(check(Machine(dict(os.environ), settings(config), root)))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    return tmp_path


def test_python() -> None:
    (found,) = seen(machine.python)
    assert found.verdict is OK
    assert "tf-worker-pool 0.1.0" in found.seen


def test_shared_memory() -> None:
    assert [found.verdict for found in seen(machine.shared_memory)] == [OK]
    many = seen(machine.shared_memory, config='[shared_memory]\nmax_bytes = "9TiB"\nclient_max_bytes = "1GiB"\n')
    assert [found.verdict for found in many] == [WARNING]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))  # the kernel counts memory files, too
    try:
        (found,) = seen(machine.shared_memory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert found.verdict is FAILED
    assert "File too large" in found.seen


def test_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for hard, verdict in ((6144, OK), (1024, WARNING)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (hard, hard))
        (found,) = seen(machine.file_descriptors)
        assert (found.verdict, f"{hard:,}" in found.seen) == (verdict, True)


def test_locked_memory() -> None:
    (found,) = seen(machine.locked_memory)
    assert (found.verdict, "may be locked" in found.seen) == (OK, True)


def test_locked_memory_that_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refuses:
        def mlock(self, *_: object) -> int:
            ctypes.set_errno(12)
            return -1

    monkeypatch.setattr(machine, "_libc", Refuses)
    (found,) = seen(machine.locked_memory)
    assert (found.verdict, "Cannot allocate memory" in found.seen) == (WARNING, True)


def test_no_cgroup_has_no_limit(root: Path) -> None:
    (found,) = seen(machine.cgroup, root)
    assert (found.verdict, found.seen) == (OK, "no limit")


def test_the_least_limit_of_a_cgroup_and_of_those_above_counts(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/a/b\n")
    (root / "sys/fs/cgroup/a/b").mkdir(parents=True)
    (root / "sys/fs/cgroup/a/b/memory.max").write_text("max\n")
    (root / "sys/fs/cgroup/a/memory.max").write_text(f"{8 << 30}\n")
    (root / "sys/fs/cgroup/a/b/pids.max").write_text("4000\n")
    (found,) = seen(machine.cgroup, root)
    assert (found.verdict, found.seen) == (OK, "at most 8.0 GiB, 4,000 threads")
    (root / "sys/fs/cgroup/a/b/memory.max").write_text(f"{1 << 30}\n")
    (root / "sys/fs/cgroup/cpu.max").write_text("50000 100000\n")
    (root / "sys/fs/cgroup/a/b/pids.max").write_text("100\n")
    (found,) = seen(machine.cgroup, root)
    assert (found.verdict, len(found.advice.split("; "))) == (WARNING, 3)
    assert "0.5 cores" in found.seen


def test_version_1_of_cgroups(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("4:memory:/of/the/host\n1:cpu,cpuacct:/\n9:name=systemd:/\n0::/\n")
    for folder in ("memory", "cpu,cpuacct"):
        (root / "sys/fs/cgroup" / folder).mkdir()
    (root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("9223372036854771712\n")
    (root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us").write_text("-1\n")
    (root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us").write_text("100000\n")
    (found,) = seen(machine.cgroup, root)
    assert (found.verdict, found.seen) == (OK, "no limit")
    (root / "sys/fs/cgroup/memory/memory.limit_in_bytes").write_text("1000\n")
    (root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us").write_text("25000\n")
    (found,) = seen(machine.cgroup, root)
    assert (found.verdict, found.seen) == (WARNING, "at most 1000 B, 0.2 cores")


@pytest.mark.parametrize(
    ("script", "verdict"),
    [
        ("echo 'systemd 252 (252.38-1)'", OK),
        ("echo 'systemd 247 (247.3)'", WARNING),
        ("echo what", CANNOT),
        ("exec sleep 600", CANNOT),
        (None, CANNOT),
    ],
)
def test_systemd(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str | None, verdict: Verdict
) -> None:
    monkeypatch.setattr(machine, "SYSTEMCTL_S", 1.0)
    if script is not None:
        (tmp_path / "systemctl").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep * bool(script)}{os.environ['PATH'] if script else ''}")
    (found,) = seen(machine.systemd, root)
    assert (found.verdict, "does not run this machine" in found.seen) == (CANNOT, True)
    (root / "run/systemd/system").mkdir(parents=True)
    (found,) = seen(machine.systemd, root)
    assert found.verdict is verdict


def test_the_endpoint(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("e")
    at = f'[pool]\nendpoint = "ipc://{folder}/p.sock"\n'
    found = {each.name: each for each in seen(machine.endpoint, config=at)}
    assert [found["endpoint"].verdict, found["ports"].verdict] == [OK, OK]
    assert "is free" in found["endpoint"].seen
    lock = EndpointLock(folder / "p.sock")
    try:
        first, _ = seen(machine.endpoint, config=at)
        assert (first.verdict, f"(pid {os.getpid()})" in first.seen) == (OK, True)
    finally:
        lock.release()
    folder.chmod(0o777)
    (refused,) = seen(machine.endpoint, config=at)
    assert (refused.verdict, "chmod 0700" in refused.seen) == (FAILED, True)


def test_ports() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as v6,
    ):
        first, second = taken.getsockname()[1], v6.getsockname()[1]
        v6.close()
        listen = f'[pool]\nlisten = ["tcp://127.0.0.1:{first}", "tcp://[::1]:{second}"]\n'
        _, *found = seen(machine.endpoint, config=listen)
    assert [each.verdict for each in found] == [FAILED, OK]
    assert "Address already in use" in found[0].seen


@pytest.mark.parametrize(("state", "verdict"), [(0, OK), (5, WARNING), (-1, CANNOT)])
def test_the_clock(monkeypatch: pytest.MonkeyPatch, state: int, verdict: Verdict) -> None:
    class Says:
        def adjtimex(self, _: object) -> int:
            return state

    monkeypatch.setattr(machine, "_libc", Says)
    (found,) = seen(machine.clock)
    assert found.verdict is verdict


def test_a_check_that_breaks_down_is_one_line(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    def broken(_: Machine) -> Iterator[Finding]:
        yield Finding("half", OK, "of it was well")
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("pool.doctor.examination.CHECKS", (broken, machine.python))
    monkeypatch.setattr("pool.doctor.cards.discover_gpus", lambda: 1 // 0)
    patient = Machine(dict(os.environ), settings(), root, probe="workers.no_such_module")
    half, line, python, nvml, tensorflow, *_ = found = list(examine(patient))
    assert (half.name, python.name, nvml.name, tensorflow.name) == ("half", "Python", "NVML", "TensorFlow")
    assert line.name == "broken"
    assert line.seen == "this check broke down: ZeroDivisionError: by nought"
    assert "in broken" in line.log
    assert nvml.verdict is FAILED
    assert "its process died: exit status 1" in tensorflow.seen
    assert "No module named workers.no_such_module" in tensorflow.advice
    assert not [each for each in found[5:] if each.verdict is not CANNOT], found


def test_the_report_has_no_secrets() -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "0", "TF_XLA_FLAGS": "--x", "TF_TOKEN_x": "hush", "PATH": "/home/me"}
    text = report([Finding("NVML", FAILED, "it hangs", "reset it", "line 1\nline 2\n")], environ)
    assert "failed  NVML: it hangs\n        reset it\n" in text
    assert "\nCUDA_VISIBLE_DEVICES=0\nTF_XLA_FLAGS=--x\n" in text
    assert text.endswith("\nPRINTED: NVML\nline 1\nline 2\n")
    assert "\nnumpy 2" in text
    assert "hush" not in text
    assert "/home/me" not in text

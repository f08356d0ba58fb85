"""What the pool needs of a machine besides GPUs. Each check looks once, and tries what the pool would do."""

import ctypes
import mmap
import os
import platform
import resource
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from pool.config import Settings
from pool.doctor.finding import CANNOT, FAILED, OK, WARNING, Finding
from pool.endpoint import default_endpoint, holder, ipc_path, prepare_folder
from pool.errors import InvalidConfig
from pool.loop import descriptors
from pool.wire.segment import attach, create
from pool.wire.sizes import readable, rounded

__all__ = ["CHECKS", "Machine"]

TRIED_BYTES = 16 << 20
WORKER_BYTES = 2 << 30  # TensorFlow with CUDA's libraries takes 1 to 2 GiB of the machine's memory
WORKER_THREADS = 200  # on a machine of 64 cores
NO_LIMIT = 1 << 60  # a larger one is how version 1 of cgroups writes none
OLDEST_SYSTEMD = 249
SYSTEMCTL_S = 10.0
UNSYNCHRONISED = 5  # TIME_ERROR of adjtimex(2)
TIMEX_BYTES = 512  # more than the kernel's structure has


@dataclass(frozen=True, slots=True)
class Machine:
    """What is examined. `root`: where its /proc, /sys and /run are. `probe`: the module that tries TensorFlow."""

    environ: Mapping[str, str]
    settings: Settings
    root: Path = Path("/")
    probe: str = "workers.tf.probe"


def python(_: Machine) -> Iterator[Finding]:
    packages = ", ".join(f"{name} {version(name)}" for name in ("tf-worker-pool", "pyzmq", "numpy"))
    yield Finding("Python", OK, f"Python {platform.python_version()}, {packages}")


def shared_memory(machine: Machine) -> Iterator[Finding]:
    name, wanted = "shared memory", machine.settings.shared_memory.max_bytes or 0
    try:
        fd = create(TRIED_BYTES)
        try:
            with attach(fd, TRIED_BYTES) as memory:
                memory.write(b"\1" * TRIED_BYTES)
        finally:
            os.close(fd)
    except OSError as error:
        advice = 'set sysctl vm.memfd_noexec below 2, or `max_bytes = "off"` in [shared_memory]'
        yield Finding(name, FAILED, f"the kernel gives none: {error.strerror}", advice)
        return
    whole = os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE
    most = min(whole, _cgroup_limits(machine.root).get("memory", whole))
    if wanted > most / 2:
        seen = f"clients may be lent {rounded(wanted)} of {readable(most)}"
        yield Finding(name, WARNING, seen, "lower `max_bytes` in [shared_memory]")
    else:
        yield Finding(name, OK, f"{rounded(TRIED_BYTES)} sealed and written; clients may be lent {rounded(wanted)}")


def file_descriptors(_: Machine) -> Iterator[Finding]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    seen = f"the pool may have {hard:,} file descriptors"
    if hard < descriptors.ENOUGH:
        advice = f"raise `ulimit -Hn`, or LimitNOFILE of the unit, to {descriptors.ENOUGH:,}"
        yield Finding("descriptors", WARNING, seen, advice)
    else:
        yield Finding("descriptors", OK, seen)


def locked_memory(_: Machine) -> Iterator[Finding]:
    hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    seen = "any amount may be locked" if hard == resource.RLIM_INFINITY else f"{rounded(hard)} may be locked"
    with mmap.mmap(-1, mmap.PAGESIZE) as page:
        first = ctypes.c_char.from_buffer(page)
        refused = _libc().mlock(ctypes.byref(first), ctypes.c_size_t(mmap.PAGESIZE))
        del first  # or the page cannot be closed
    if refused:
        advice = "raise `ulimit -Hl`, or the memlock limit of the container"
        yield Finding("locked memory", WARNING, f"{seen}, but not one page: {_last_error()}", advice)
    else:
        yield Finding("locked memory", OK, seen)


def cgroup(machine: Machine) -> Iterator[Finding]:
    limits, cores = _cgroup_limits(machine.root), len(os.sched_getaffinity(0))
    seen, advice = [], []
    for kind, least, shown, better in (
        ("memory", WORKER_BYTES, readable, f"allow {rounded(WORKER_BYTES)} of memory for each worker"),
        ("cpu", cores, "{:.1f} cores".format, "set OMP_NUM_THREADS and TF_NUM_INTRAOP_THREADS to what is allowed"),
        ("pids", WORKER_THREADS, "{:,.0f} threads".format, f"allow {WORKER_THREADS} threads for each worker"),
    ):
        if kind in limits:
            seen.append(shown(limits[kind]))
            advice += [better] * (limits[kind] < least)
    text = f"at most {', '.join(seen)}" if seen else "no limit"
    yield Finding("cgroup", WARNING if advice else OK, text, "; ".join(advice))


def systemd(machine: Machine) -> Iterator[Finding]:
    if not (machine.root / "run/systemd/system").is_dir():
        advice = "let what runs the container restart `pool start`"
        yield Finding("systemd", CANNOT, "systemd does not run this machine", advice)
        return
    try:
        said = subprocess.run(
            ["systemctl", "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SYSTEMCTL_S
        )
        number = int(said.stdout.split()[1])
    except (OSError, subprocess.TimeoutExpired, ValueError, IndexError) as error:
        yield Finding("systemd", CANNOT, f"`systemctl --version` does not answer: {error}")
        return
    if number < OLDEST_SYSTEMD:
        yield Finding("systemd", WARNING, f"systemd {number}", f"use systemd {OLDEST_SYSTEMD} or later")
    else:
        yield Finding("systemd", OK, f"systemd {number}; `pool systemd install` writes a service")


def endpoint(machine: Machine) -> Iterator[Finding]:
    """And the ports of `listen`, unless a pool that runs there has them."""
    pool = machine.settings.pool
    where = pool.endpoint or default_endpoint(machine.environ, os.getuid())
    try:
        path = ipc_path(where)
        prepare_folder(path)
    except InvalidConfig as error:
        yield Finding("endpoint", FAILED, str(error), "set another `endpoint` in [pool]")
        return
    pid = holder(path)
    yield Finding("endpoint", OK, f"{where} is free" if pid is None else f"a pool runs at {where} (pid {pid})")
    if pid is not None or not pool.listen:
        seen = "no port is configured: clients use the endpoint" if not pool.listen else "the pool that runs has them"
        yield Finding("ports", OK, seen)
        return
    for each in pool.listen:
        host, _, port = each.removeprefix("tcp://").rpartition(":")
        try:
            with socket.create_server((host.strip("[]"), int(port)), family=_family(host)):
                yield Finding("ports", OK, f"{each} is free")
        except OSError as error:
            yield Finding("ports", FAILED, f"{each}: {error.strerror}", "set another port in `listen` of [pool]")


def clock(_: Machine) -> Iterator[Finding]:
    state = _libc().adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
    if state < 0:
        yield Finding("clock", CANNOT, f"the kernel does not say whether it is synchronised: {_last_error()}")
    elif state == UNSYNCHRONISED:
        advice = "run chrony or systemd-timesyncd; only the times in logs depend on it"
        yield Finding("clock", WARNING, "nothing synchronises it", advice)
    else:
        yield Finding("clock", OK, "it is synchronised")


CHECKS = (python, shared_memory, file_descriptors, locked_memory, cgroup, systemd, endpoint, clock)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _last_error() -> str:
    return os.strerror(ctypes.get_errno())


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _cgroup_limits(root: Path) -> dict[str, float]:
    """The least of each kind, here and above: "memory" in bytes, "cpu" in cores, "pids"."""
    limits: dict[str, float] = {}
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:  # a kernel without them
        return limits
    for line in lines:
        _, controllers, path = line.split(":", 2)
        mount = root / "sys/fs/cgroup" / controllers.removeprefix("name=")
        folder = mount / path.strip("/")
        # In a container the path may be the host's, of which no more is there than the mount.
        for each in (folder, *folder.parents):
            if each.is_relative_to(mount):
                for kind, limit in _limits_in(each):
                    limits[kind] = min(limit, limits.get(kind, limit))
    return limits


def _limits_in(folder: Path) -> Iterator[tuple[str, float]]:
    """Versions 2 and 1 name them differently."""
    for kind, name in (
        *(("memory", "memory.max"), ("memory", "memory.limit_in_bytes"), ("pids", "pids.max")),
        *(("cpu", "cpu.max"), ("cpu", "cpu.cfs_quota_us")),
    ):
        with suppress(OSError, ValueError):  # it is not there, or says "max"
            said, *period = (folder / name).read_text().split()
            limit = float(said)
            if kind == "cpu":
                limit /= float(period[0] if period else (folder / "cpu.cfs_period_us").read_text())
            if 0 < limit < NO_LIMIT:
                yield kind, limit

"""`pool doctor`: whether this machine can run a pool, and workers on each of its GPUs."""

import mmap
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal

from pool.cli.screen import as_json, echo_json
from pool.devices import Device, cpu_share, environment, slots
from pool.devices.monitor import Level, Monitor
from pool.endpoint import ipc_path, own, prepare_folder
from pool.errors import PoolError
from pool.log import printable

ARENA_BYTES = 64 << 20
FREE_S, SLACK_BYTES = 10.0, 256 << 20  # what other processes may take meanwhile
CGROUPS = Path("/sys/fs/cgroup")


@click.command()
@click.option("--timeout", type=click.FloatRange(1), default=150.0, show_default=True, help="Of each try, in seconds.")
@as_json
def doctor(timeout: float, as_json: bool) -> int:
    """Check whether a pool can run here, and whether TensorFlow works on the CPU and on each GPU.

    The exit status is 1 if not. Each device is tried in a process of its own, with a time-out, for a driver may hang.
    """
    found = []

    def look(check: str, act: Callable[..., str], *given: Any) -> None:
        try:
            verdict, text = "ok", act(*given)
        except (PoolError, OSError) as error:
            verdict, text = "failure", str(error)
        found.append({"check": check, "verdict": verdict, "text": text})
        if not as_json:
            click.echo(f"{click.style(verdict, 'green' if verdict == 'ok' else 'red')}: {check}: {printable(text)}")

    gpus: list[Device] = []
    levels: dict[str, Level] = {}
    look("endpoint", listening)
    look("shared memory", shared)
    look("limits", limits)
    look("NVML", listed, gpus, levels)
    for device in (Device("cpu"), *gpus):
        look(device.label, tried, device, timeout, levels)
    if as_json:
        echo_json(found)
    return int(any(each["verdict"] == "failure" for each in found))


def listening() -> str:
    """Where a pool of this user listens, if its configuration says nothing else."""
    endpoint = own(os.environ, os.getuid())
    path = ipc_path(endpoint)
    prepare_folder(path, None)
    if not os.access(path.parent, os.W_OK):
        raise PoolError(f"{path.parent} cannot be written; set POOL_ENDPOINT to ipc:// and a path that can")
    return endpoint


def shared() -> str:
    """Clients lend such memory to the pool; it counts as theirs."""
    with open(os.memfd_create("pool-doctor", os.MFD_ALLOW_SEALING), "r+b") as file:
        file.truncate(ARENA_BYTES)
        with mmap.mmap(file.fileno(), ARENA_BYTES) as memory:
            memory.write(bytes(ARENA_BYTES))
    return f"{decimal(ARENA_BYTES)} could be written"


def limits() -> str:
    """What a container, systemd or a shell allows."""
    cgroup = CGROUPS / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    folders = [folder for folder in (cgroup, *cgroup.parents) if folder.is_relative_to(CGROUPS)]
    quotas = [each.read_text().split() for folder in folders for each in folder.glob("cpu.max")]
    cores = min((float(quota) / float(period) for quota, period in quotas if quota != "max"), default=inf)
    texts = [each.read_text().strip() for folder in folders for each in folder.glob("memory.max")]
    nbytes = min((int(text) for text in texts if text != "max"), default=0)
    seen, files = len(os.sched_getaffinity(0)), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    told = f"{decimal(nbytes) if nbytes else 'any'} memory, {min(cores, seen):g} cores, {files} open files"
    if cores < seen:  # a thread for each core that is seen is too many then
        told += f"; TensorFlow sees {seen}: set OMP_NUM_THREADS and TF_NUM_INTRAOP_THREADS to {max(1, int(cores))}"
    return told


def listed(gpus: list[Device], levels: dict[str, Level]) -> str:
    """Adds those that a pool would use, and what is in use of each."""
    with closing(Monitor()) as monitor:
        gpus += [device for device in slots(None, os.environ, monitor) if device.uuids]
        levels |= monitor.gpus
    return f"GPUs that can be used: {len(gpus)}"


def tried(device: Device, timeout_s: float, before: Mapping[str, Level]) -> str:
    """What `workers.probe` says of a device, and whether its memory is free again afterwards."""
    environ = environment(device, os.environ, {"log_device_placement": False}, cpu_share([device]))
    argv, pipe = [sys.executable, "-P", "-m", "workers.probe", str(len(device.uuids))], subprocess.PIPE
    child = subprocess.Popen(argv, env=environ, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe)
    try:
        texts = [output.decode(errors="replace").strip() for output in child.communicate(timeout=timeout_s)]
    except subprocess.TimeoutExpired:
        raise PoolError(f"TensorFlow is silent for {timeout_s:g} s: see `nvidia-smi`, or give --timeout") from None
    finally:
        child.kill()  # and not waited for: the driver may hold it
    said, errors = (text.rpartition("\n")[2] for text in texts)
    if child.returncode:
        raise PoolError(f"TensorFlow ends its process with status {child.returncode}: {errors:.600}")
    until = time.monotonic() + min(FREE_S, timeout_s)
    while (more := sum(used(uuid) - (before[uuid].used_bytes or 0) for uuid in device.uuids)) > SLACK_BYTES:
        if time.monotonic() > until:
            raise PoolError(f"{decimal(more)} are not free again after TensorFlow's end: see `nvidia-smi`")
    return f"{said}, computes on {device.name}"


def used(uuid: str) -> int:
    """The bytes in use now; 0 where NVML does not say."""
    with closing(Monitor()) as monitor:
        monitor.start(os.environ)
        return (level.used_bytes or 0) if (level := monitor.gpus.get(uuid)) else 0

"""A worker waits until its GPUs are free of former ones. It asks NVML itself, for a call may hang with the driver."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

LOOK_S = 0.1
SLACK_BYTES, SLACK_SHARE = 256 << 20, 0.05  # a context of another process, or what the driver itself takes

log = logging.getLogger("workers")


def wait_until_free(device: Mapping[str, Any], former: Mapping[str, Any], tell: Callable[..., None]) -> None:
    """Waits without an end, which is the pool's to set, and tells for what. Goes on where NVML tells nothing.

    `former`: the "pids" of workers before this one, as far as NVML has listed them; else the "level", the used bytes of
    each GPU before the first of them, or None. Workers of a pool that is gone are waited for, other programs never.
    """
    said = "NVML"
    tell(phase="memory", waits=said)
    try:
        import pynvml

        pynvml.nvmlInit()
        while left := [text for uuid in device["uuids"] for text in _left(pynvml, uuid, former)]:
            if said != (said := " and ".join(left)):
                tell(phase="memory", waits=said)
            time.sleep(LOOK_S)
        pynvml.nvmlShutdown()
    except Exception as error:  # the module is missing, or whatever this NVML does
        log.warning("%s may not be free of former workers: %s", device["label"], error)


def _left(nvml: ModuleType, uuid: str, former: Mapping[str, Any]) -> list[str]:
    handle, listed = nvml.nvmlDeviceGetHandleByUUID(uuid), []
    with suppress(Exception):  # a driver that does not tell
        listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    sizes = {each.pid: f"{each.usedGpuMemory / 1e9:.1f} GB" if each.usedGpuMemory else "memory" for each in listed}
    waited_for = [pid for pid in sizes if pid in former["pids"] or is_orphan(pid)]
    left = [f"{sizes[pid]} of pid {pid} on {uuid}" for pid in waited_for]
    if not former["pids"] and former["level"]:
        more = nvml.nvmlDeviceGetMemoryInfo(handle).used - former["level"][uuid]
        if more > max(SLACK_BYTES, SLACK_SHARE * former["level"][uuid]):
            left.append(f"{more / 1e9:.1f} GB more than before the first worker on {uuid}")
    return left


def is_orphan(pid: int) -> bool:
    """Whether it is a worker that has another parent than the pool it was started by."""
    with suppress(OSError, ValueError):
        # `… -m workers LINK PARENT STACKS`. The name in parentheses may hold spaces and parentheses.
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]
        parent = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1]
        return words[-5:-3] == [b"-m", b"workers"] and words[-2] != parent
    return False

"""Who holds how much of a device's memory: NVML's word, and what the kernel says of the processes that NVML lists.

Any of these calls may hang for as long as the driver does, and reading the command line of a process that is stuck in
the kernel may too: so a worker makes them (`workers.device_memory`), and the pool never does while it serves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType

__all__ = ["Occupancy", "Occupant", "occupancy_of", "untold"]

PROC = Path("/proc")

_NOT_FOUND, _GPU_IS_LOST, _RESET_REQUIRED = 6, 15, 16  # NVML_ERROR_…


@dataclass(frozen=True, slots=True)
class Occupant:
    """A process that NVML lists on a device; `used_bytes` None or 0: not told.

    `state` is the kernel's letter (D: stuck in it) and `group` its process group; "" and None for a process that is
    not to be seen here: it is gone, or NVML counts in another pid namespace. `orphan`: a worker whose pool is gone.
    """

    pid: int
    used_bytes: int | None
    state: str = ""
    group: int | None = None
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Of one device, at one moment. None is what NVML did not tell, and then `trouble` says why."""

    used_bytes: int | None
    occupants: tuple[Occupant, ...] | None
    trouble: str = ""
    free_bytes: int | None = None
    lost: bool = False
    """NVML says that the device is gone, or needs a reset; `trouble` has its words."""

    @property
    def told(self) -> bool:
        """Whether NVML told anything."""
        return self.used_bytes is not None or self.occupants is not None


def untold(trouble: str, lost: bool = False) -> Occupancy:
    return Occupancy(None, None, trouble, lost=lost)


def occupancy_of(nvml: ModuleType, uuid: str, proc: Path = PROC) -> Occupancy:
    """Asks NVML, between its `nvmlInit` and `nvmlShutdown`. `uuid`: of a GPU or of a MIG instance.

    May hang, and raises nothing that NVML raises: where it tells one thing and not the other, the one is worth having.
    """
    try:
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError as error:
        # A GPU's uuid was NVML's own word; a MIG instance may be one that this NVML does not know of.
        return untold(str(error), _is_loss(error) or (_code(error) == _NOT_FOUND and uuid.startswith("GPU-")))
    trouble: list[str] = []
    lost = False
    used_bytes: int | None = None
    free_bytes: int | None = None
    occupants: tuple[Occupant, ...] | None = None
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        used_bytes, free_bytes = int(memory.used), int(memory.free)
    except nvml.NVMLError as error:
        trouble.append(f"its used memory: {error}")
        lost = _is_loss(error)
    try:
        listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        occupants = tuple(_occupant(process.pid, process.usedGpuMemory, proc) for process in listed)
    except nvml.NVMLError as error:
        trouble.append(f"its processes: {error}")
        lost = lost or _is_loss(error)
    return Occupancy(used_bytes, occupants, "; ".join(trouble), free_bytes, lost)


def _code(error: Exception) -> object:
    """NVML's number of its error; its text is for people."""
    return getattr(error, "value", None)


def _is_loss(error: Exception) -> bool:
    return _code(error) in (_GPU_IS_LOST, _RESET_REQUIRED)


def _occupant(pid: int, used_bytes: int | None, proc: Path) -> Occupant:
    try:
        # The name in parentheses may hold spaces and parentheses.
        state, parent, group = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()[:3]
        words = (proc / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    except (OSError, ValueError):
        return Occupant(pid, used_bytes)
    return Occupant(pid, used_bytes, state, int(group), _is_orphan(words, parent))


def _is_orphan(words: Sequence[str], parent: str) -> bool:
    """Whether it is a worker (`pool.launch`) that has another parent than the pool it was started by."""
    if "--parent" not in words[:-1] or ("-m", "workers") not in pairwise(words):
        return False
    return words[words.index("--parent") + 1] != parent

"""NVML: opened in one way, and asked how a device is used and who holds how much of its memory.

Any call may hang for as long as the driver does, and so may reading the command line of a process that is stuck in the
kernel. So a worker makes them for its own GPUs, and for the pool a process of their own does. Light, for workers
import it too.
"""

import importlib
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType

__all__ = [
    "NoNvml",
    "Nvml",
    "Occupancy",
    "Occupant",
    "Reading",
    "close_nvml",
    "occupancy_of",
    "open_nvml",
    "reading_of",
    "untold",
]

PROC = Path("/proc")

_NOT_FOUND, _GPU_IS_LOST, _RESET_REQUIRED = 6, 15, 16  # NVML_ERROR_…
_INSTALL = "pip install 'tf-worker-pool[gpu]'"


class NoNvml(Exception):
    """Why NVML tells nothing here, in one line."""


def open_nvml(module: ModuleType | None = None) -> ModuleType:
    """nvidia-ml-py's functions, ready to be asked; `close_nvml` ends that. Raises `NoNvml`.

    `module`: one with these functions; by default `pynvml`, if it is installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what it has to say about its own name is of no use in a log
            nvml = module or importlib.import_module("pynvml")
    except ImportError as error:
        raise NoNvml(f"NVML's Python module is not installed ({_INSTALL})") from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoNvml(f"NVML does not start: {error}") from error
    return nvml


def close_nvml(nvml: ModuleType) -> None:
    # Nothing that was learned is wrong because the library cannot be closed.
    with suppress(nvml.NVMLError):
        nvml.nvmlShutdown()


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

    def is_of(self, pids: Collection[int]) -> bool:
        """Whether it is one of these workers, or a child of one."""
        # A child is in its worker's process group, which keeps its number as long as one of them lives.
        return self.pid in pids or self.group in pids


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

    def bytes_of(self, pids: Collection[int]) -> int:
        """What these workers and their children hold, as far as NVML lists them and tells it."""
        return sum(occupant.used_bytes or 0 for occupant in self.occupants or () if occupant.is_of(pids))


@dataclass(frozen=True, slots=True)
class Reading:
    """How a device is used at one moment. None is what NVML does not tell; of a MIG instance that is its utilization.

    `utilization`: the part of NVML's last sample period (a second at most) in which a kernel ran, 0.0 to 1.0.
    """

    used_bytes: int | None
    total_bytes: int | None
    utilization: float | None
    temperature_c: int | None


class Nvml:
    """Opened when it is first asked, and anew when it told nothing: the driver may have been replaced.

    Used from one thread at a time.
    """

    def __init__(self) -> None:
        self._opened: ModuleType | None = None

    def ask(self, uuids: Sequence[str]) -> Mapping[str, Occupancy]:
        """One answer for each uuid, whatever goes wrong."""
        try:
            nvml = self._opened = self._opened or open_nvml()
            found = {uuid: occupancy_of(nvml, uuid) for uuid in uuids}
        except Exception as error:  # whatever this release of NVML does, the worker says so and goes on
            return dict.fromkeys(uuids, untold(f"{error}"))
        if not any(one.told for one in found.values()):
            self.close()
        return found

    def close(self) -> None:
        if self._opened is not None:
            close_nvml(self._opened)
        self._opened = None


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
    used_bytes = free_bytes = occupants = None
    errors: dict[str, Exception] = {}
    try:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        used_bytes, free_bytes = int(memory.used), int(memory.free)
    except nvml.NVMLError as error:
        errors["its used memory"] = error
    try:
        listed = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        occupants = tuple(_occupant(process.pid, process.usedGpuMemory, proc) for process in listed)
    except nvml.NVMLError as error:
        errors["its processes"] = error
    trouble = "; ".join(f"{what}: {error}" for what, error in errors.items())
    return Occupancy(used_bytes, occupants, trouble, free_bytes, any(map(_is_loss, errors.values())))


def reading_of(nvml: ModuleType, uuid: str) -> Reading:
    """As `occupancy_of`: may hang, and raises nothing that NVML raises."""
    used_bytes = total_bytes = utilization = temperature_c = None
    with suppress(nvml.NVMLError):
        handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
        with suppress(nvml.NVMLError):
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
            used_bytes, total_bytes = int(memory.used), int(memory.total)
        with suppress(nvml.NVMLError):
            utilization = int(nvml.nvmlDeviceGetUtilizationRates(handle).gpu) / 100
        with suppress(nvml.NVMLError):
            temperature_c = int(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU))
    return Reading(used_bytes, total_bytes, utilization, temperature_c)


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
    """Whether it is a worker (`pool.processes.launch`) that has another parent than the pool it was started by."""
    if "--parent" not in words[:-1] or ("-m", "workers") not in pairwise(words):
        return False
    return words[words.index("--parent") + 1] != parent

"""NVML, opened when it is first asked, and anew when it told nothing: the driver may have been replaced.

Any call may hang for as long as the driver does.
"""

import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType

from pool.devices.occupancy import Occupancy, occupancy_of, untold

__all__ = ["Nvml", "load_nvml"]


def load_nvml() -> ModuleType:
    """nvidia-ml-py. What it has to say about its own name is of no use in a log."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("pynvml")


class Nvml:
    """Used from one thread at a time."""

    def __init__(self, load: Callable[[], ModuleType] = load_nvml) -> None:
        self._load = load
        self._module: ModuleType | None = None

    def ask(self, uuids: Sequence[str]) -> Mapping[str, Occupancy]:
        """One answer for each uuid, whatever goes wrong."""
        try:
            if self._module is None:
                module = self._load()
                module.nvmlInit()
                self._module = module
            found = {uuid: occupancy_of(self._module, uuid) for uuid in uuids}
        except Exception as error:  # NVML's own is not known before it is loaded
            return dict.fromkeys(uuids, untold(f"{error}"))
        if not any(one.told for one in found.values()):
            self.close()
        return found

    def close(self) -> None:
        module, self._module = self._module, None
        if module is not None:
            with suppress(module.NVMLError):
                module.nvmlShutdown()

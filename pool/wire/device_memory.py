"""What a worker and its slot's next one hear of each other, about the memory of the slot's GPUs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

__all__ = ["DeviceHeld", "DeviceWait", "Level"]


@dataclass(frozen=True, slots=True)
class Level:
    """Bytes in use on a GPU: just before a worker came, and when that worker looked last. None: not known."""

    before: int | None = None
    last: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceHeld:
    """What a worker takes of its GPUs. It says so when it may touch them, and again once it is warm.

    `pids`: its own, and those of its children that NVML has listed. `listed`: whether NVML lists it.
    `levels`: by uuid. `size_bytes`: what it holds once warm; None: not known.
    """

    kind: ClassVar[int] = 45
    pids: tuple[int, ...]
    listed: bool
    levels: Mapping[str, Level]
    size_bytes: int | None = None

    @property
    def levels_known(self) -> bool:
        """Whether NVML has told the level of one of the GPUs."""
        return any(level.before is not None or level.last is not None for level in self.levels.values())


@dataclass(frozen=True, slots=True)
class DeviceWait:
    """What a worker waits for before it touches its GPUs, and for how long.

    `label` names the slot's GPUs for people. `sharers`: by uuid, how many slots of the pool are on it.
    `former`: what the dead workers of the slot have said, the oldest first; they must be gone from the GPUs.
    `beside`: likewise those that live. `must_fit`: the GPUs must have room for it beside them.
    """

    label: str
    sharers: Mapping[str, int]
    timeout_s: float
    former: tuple[DeviceHeld, ...] = ()
    beside: tuple[DeviceHeld, ...] = ()
    must_fit: bool = False

"""What `pool doctor` and the process that tries TensorFlow for it say to each other: one order, one answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pool.wire.device_memory import DeviceHeld, DeviceWait
from pool.wire.worker_messages import TensorFlowSettings

__all__ = ["ProbeAnswer", "ProbeOrder", "SeenGpu"]


@dataclass(frozen=True, slots=True)
class ProbeOrder:
    """`parent`: its death ends the process. `stacks_after_s`: then the process prints where it hangs.

    `gpus`: so many its Session must have, and it computes there; None: it lists what it sees, and computes nothing.
    `wait`: what it waits for before it touches its GPUs, as a worker does. `hold_bytes`: it takes them, and keeps them.
    """

    parent: int
    stacks_after_s: float
    tensorflow: TensorFlowSettings
    gpus: int | None = None
    wait: DeviceWait | None = None
    hold_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SeenGpu:
    """`limit_bytes`: what TensorFlow allows itself there."""

    bus: str
    name: str
    capability: str
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """`failure`: one line, or "" if nothing went wrong. `waited_s`: for the memory of its GPUs.

    `version`, `built_for`: of TensorFlow; `built_for` has "cuda", "cudnn" and "capabilities" if it can use GPUs.
    `difference`: of its device's numbers from the CPU's, as a part of them. `held`: as a worker would say it.
    """

    failure: str = ""
    version: str = ""
    built_for: Mapping[str, str] = field(default_factory=dict)
    gpus: tuple[SeenGpu, ...] = ()
    difference: float | None = None
    waited_s: float | None = None
    held: DeviceHeld | None = None

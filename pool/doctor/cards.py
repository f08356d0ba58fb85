"""The GPUs, as NVML lists them and as TensorFlow in a worker's place uses them.

NVML ─► TensorFlow lists what it sees ─► one process on each device ─► killed ─► two on each device ─► killed

Each process has the environment that a worker would have. A machine without a GPU is tried on the CPU.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from pool.devices import Device, Discovery, discover_gpus, resolve_devices
from pool.doctor import verdicts
from pool.doctor.finding import CANNOT, OK, Finding
from pool.doctor.machine import Machine
from pool.doctor.probe import LONGEST_S, Probe
from pool.processes import cpu_share, inherited, worker_environ
from pool.wire.device_memory import DeviceWait
from pool.wire.probe import ProbeAnswer
from pool.wire.sizes import readable

__all__ = ["Cards"]

FREE_S = 30.0  # as [health] device_free_timeout is by default
LOOK_S = 0.5
NEEDED_BYTES = 3 << 30  # two contexts of CUDA, and what is taken
CPU = Device("cpu", (), "cpu", "CPU", None)
NVIDIA, DISPLAY = "0x10de", "0x03"  # the vendor, and the class of graphics and compute cards
OF_GPUS = ("PCI order", "each GPU", "memory that grows", "memory that comes back", "fractions", "GPU two workers")


@dataclass(frozen=True, slots=True)
class Sight:
    """What a process told of its device, and what it printed."""

    device: Device
    answer: ProbeAnswer
    log: str


@dataclass(slots=True)
class Cards:
    """Each method is a check, and uses what those before it have found."""

    machine: Machine
    discovery: Discovery = field(default_factory=lambda: Discovery((), None))
    devices: Sequence[Device] = ()
    tried: Sequence[Device] = ()
    alone: Sequence[Sight] = ()

    def nvml(self) -> Iterator[Finding]:
        began = time.monotonic()
        self.discovery = discover_gpus()
        devices, notes = resolve_devices("auto", self.discovery, self.machine.environ)
        self.devices = [device for device in devices if device.kind == "gpu"]
        yield verdicts.nvml(self.discovery, notes, self._on_pci(), time.monotonic() - began)

    def tensorflow(self) -> Iterator[Finding]:
        """What a program of the user's would see, which counts GPUs as the configuration does."""
        environ = {**inherited(self.machine.environ), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        with Probe(self.machine.probe, environ) as probe:
            answer = probe.answer(time.monotonic() + LONGEST_S)
            yield verdicts.tensorflow(answer, self.devices, probe.printed())
        yield verdicts.cuda(answer, self.discovery.cuda)
        if answer.gpus and self.devices:
            self.tried = self.devices
            yield verdicts.order(answer, self.devices)
            return
        self.tried = () if answer.failure or self.devices else (CPU,)
        why = "TensorFlow sees no GPU" if self.devices else "there is no GPU to try it on"
        yield from (Finding(name, CANNOT, why) for name in OF_GPUS)

    def one_each(self) -> Iterator[Finding]:
        """A process on each GPU that takes what it needs."""
        gpus = [device for device in self.tried if device.uuids]
        for device in filter(_has_no_room, gpus):
            seen = f"only {readable(device.free_bytes or 0)} of {device.name} are free"
            yield Finding(device.label, CANNOT, seen, "end what uses it, see `nvidia-smi`, and ask again")
        before = _used(self.discovery)
        with self._trying([device for device in gpus if not _has_no_room(device)], 1) as self.alone:
            during = _used(discover_gpus()) if self.alone else {}
        for sight in self.alone:
            yield verdicts.identity(sight.device, sight.answer, sight.log)
            yield verdicts.computing(f"{sight.device.label} computes", sight.answer)
            yield verdicts.growth(sight.device, sight.answer, before, during)

    def two_each(self) -> Iterator[Finding]:
        """Two on each, in the place of the one that was killed; on the CPU, if there is no GPU."""
        usable = [sight.device for sight in self.alone if not sight.answer.failure]
        before = _used(self.discovery)
        with self._trying(usable or [device for device in self.tried if device is CPU], 2) as sights:
            during = _used(discover_gpus()) if usable else {}
        for first, second in zip(sights[::2], sights[1::2], strict=True):
            device, pair, log = first.device, (first.answer, second.answer), first.log + second.log
            if device.uuids:
                yield verdicts.freeing(device, pair, log)
                yield verdicts.fractions(device, pair, before, during)
            yield verdicts.side_by_side(device, pair, log)
        if usable:
            yield self._all_back(before)

    def _all_back(self, before: dict[str, int]) -> Finding:
        ends = time.monotonic() + FREE_S
        while True:
            found = verdicts.all_back(before, _used(discover_gpus()))
            if found.verdict is OK or time.monotonic() >= ends:
                return found
            time.sleep(LOOK_S)

    @contextmanager
    def _trying(self, devices: Sequence[Device], each: int) -> Iterator[list[Sight]]:
        """`each` processes on each device, all at the same time, until the end of the block."""
        former = {sight.device.label: sight.answer.held for sight in self.alone}
        with ExitStack() as running:
            started = []
            for device in [device for device in devices for _ in range(each)]:
                held = former.get(device.label)
                wait = DeviceWait(device.label, dict.fromkeys(device.uuids, each), FREE_S, (held,) if held else ())
                environ = worker_environ(device, cpu_share(len(os.sched_getaffinity(0)), each), self.machine.environ)
                probe = Probe(
                    self.machine.probe,
                    environ,
                    gpus=len(device.uuids),
                    wait=wait if device.uuids else None,
                    hold_bytes=verdicts.HOLD_BYTES // each**2,
                    fraction=verdicts.FRACTION_BYTES / device.memory_bytes if each > 1 and device.memory_bytes else 0.0,
                )
                started.append((device, running.enter_context(probe)))
            ends = time.monotonic() + LONGEST_S
            yield [Sight(device, probe.answer(ends), probe.printed()) for device, probe in started]

    def _on_pci(self) -> list[str]:
        """NVIDIA's cards, which the kernel shows without any driver."""
        found = sorted((self.machine.root / "sys/bus/pci/devices").glob("*"))
        return [
            each.name
            for each in found
            if (each / "vendor").read_text().startswith(NVIDIA) and (each / "class").read_text().startswith(DISPLAY)
        ]


def _has_no_room(device: Device) -> bool:
    return device.free_bytes is not None and device.free_bytes < NEEDED_BYTES


def _used(discovery: Discovery) -> dict[str, int]:
    """By uuid; without those of which NVML does not tell."""
    whole = [each for gpu in discovery.gpus for each in (gpu, *(gpu.instances or ()))]
    return {each.uuid: each.memory_used_bytes for each in whole if each.memory_used_bytes is not None}

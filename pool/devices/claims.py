"""What the workers of each slot have said that they take of its GPUs, for the worker that is to follow them.

It is not looked into here: one worker says it, another one reads it.
"""

from collections import Counter
from collections.abc import Collection, Sequence

from pool.devices.resolve import Device
from pool.wire.device_memory import DeviceHeld, DeviceWait

__all__ = ["Claims"]


class Claims:
    def __init__(self, devices: Sequence[Device], timeout_s: float) -> None:
        """`timeout_s`: how long a worker waits for the memory of its GPUs; 0: not at all."""
        self.timeout_s = timeout_s
        """For those who begin to wait from now on."""
        self._devices = devices
        self._sharers = Counter(uuid for device in devices for uuid in device.uuids)
        self._held: dict[int, dict[int, DeviceHeld]] = {}  # by slot and incarnation

    def said(self, slot: int, incarnation: int, held: DeviceHeld, alive: Collection[int]) -> None:
        """It may touch its GPUs, so of the others only those that are `alive` hold anything there."""
        former = self._held.get(slot, {})
        self._held[slot] = {each: what for each, what in former.items() if each in alive} | {incarnation: held}

    def wait(self, slot: int, incarnation: int, beside: Collection[int], *, must_fit: bool) -> DeviceWait | None:
        """What this worker waits for; None: nothing. `beside`: others of the slot that live, and may go on to."""
        device = self._devices[slot]
        if not device.uuids or not self.timeout_s:
            return None
        sharers = {uuid: self._sharers[uuid] for uuid in device.uuids}
        held = sorted((each, what) for each, what in self._held.get(slot, {}).items() if each != incarnation)
        dead = tuple(what for each, what in held if each not in beside)
        alive = tuple(what for each, what in held if each in beside)
        return DeviceWait(device.label, sharers, self.timeout_s, dead, alive, must_fit and bool(beside))

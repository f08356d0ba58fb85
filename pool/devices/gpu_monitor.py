"""The pool's end of the process that asks the driver (`pool.devices.listener`); survives its death."""

import contextlib
import json
import logging
import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pool.devices.nvml import Reading
from pool.devices.resolve import Device
from pool.devices.xid import words
from pool.logs import about

if TYPE_CHECKING:
    from pool.loop import Loop

__all__ = ["GpuMonitor"]

log = logging.getLogger("pool.worker")

CHUNK_BYTES = 65536
AGAIN_S = 1.0  # after its end
END_S = 0.5  # it exits in milliseconds; longer only where the driver has it
LATELY_S = 60.0  # what is older has been said by the pool that it concerned
KEPT_S = 86400.0  # that a GPU is lost may be noticed long after
STALE_S = 10.0  # an older reading says nothing of now
UNREAD = Reading(None, None, None, None)


class GpuMonitor:
    """Logs each error that the driver has on a slot's GPU. Keeps the last error and the last reading of each GPU."""

    def __init__(
        self, devices: Sequence[Device], environ: Mapping[str, str], loop: "Loop", asks_nvml: bool = True
    ) -> None:
        """`environ`: the process's. It is started at once, unless no device is a GPU, or it is not to ask NVML."""
        self._devices = devices
        self._environ = environ
        self._loop = loop
        self._buses = {uuid: "" for device in devices for uuid in device.uuids}
        for device in devices:
            self._buses.update(zip(device.uuids, device.buses, strict=False))
        self._last: dict[str, tuple[int, float]] = {}
        self._readings: dict[str, tuple[Reading, float]] = {}
        self._partial = b""
        self._process: subprocess.Popen[bytes] | None = None
        self._again = loop.alarm(self._start)
        if self._buses and asks_nvml:
            self._start()

    def error_of(self, slot: int) -> str:
        """The last error on one of the slot's GPUs, if it is not long ago; else ""."""
        now = time.monotonic()
        told = [self._last[uuid] for uuid in self._devices[slot].uuids if uuid in self._last]
        number, at = max(told, key=lambda each: each[1], default=(0, -math.inf))
        return words(number, now - at) if now - at <= KEPT_S else ""

    def readings(self, slot: int) -> list[Reading]:
        """One for each of the slot's GPUs, with nothing in it where the driver has not said anything of late."""
        now = time.monotonic()
        found = [self._readings.get(uuid, (UNREAD, now)) for uuid in self._devices[slot].uuids]
        return [reading if now - at <= STALE_S else UNREAD for reading, at in found]

    def close(self) -> None:
        """The process is gone when this returns; only one that the driver does not let go is left behind."""
        self._again.clear()
        if self._process is None:
            return
        self._hang_up(self._process)
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)

    def _start(self) -> None:
        if self._process is not None and self._process.poll() is None:  # the driver has it: one is enough
            self._again.by(time.monotonic() + AGAIN_S)
            return
        argv = [sys.executable, "-P", "-m", "pool.devices.listener", *(f"{a}={b}" for a, b in self._buses.items())]
        try:
            self._process = process = subprocess.Popen(
                argv,
                env=dict(self._environ),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                process_group=0,  # a terminal's Ctrl-C is the pool's to handle
            )
        except OSError:  # the machine has no process or descriptor left
            self._again.by(time.monotonic() + AGAIN_S)
            return
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        self._loop.register(process.stdout.fileno(), self._read)

    def _read(self) -> None:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        try:
            chunk = os.read(process.stdout.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return
        *lines, self._partial = (self._partial + chunk).split(b"\n")
        try:
            for line in lines:
                kind, uuid, *said = json.loads(line)
                if uuid not in self._buses:
                    raise ValueError("no GPU of these")
                if kind == "error":
                    self._heard(uuid, *_error(*said))
                else:
                    self._readings[uuid] = _reading(*said), time.monotonic()
        except (ValueError, TypeError, OverflowError, RecursionError):
            chunk = b""
        if not chunk or len(self._partial) > CHUNK_BYTES:
            self._partial = b""
            self._hang_up(process)
            process.kill()
            self._again.by(time.monotonic() + AGAIN_S)

    def _hang_up(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        if not process.stdin.closed:
            process.stdin.close()
            self._loop.unregister(process.stdout.fileno())
            process.stdout.close()

    def _heard(self, uuid: str, number: int, at: float) -> None:
        if self._last.get(uuid) == (number, at):
            return  # it was started anew
        self._last[uuid] = number, at
        ago_s = time.monotonic() - at
        if ago_s > LATELY_S:
            return
        for slot, device in enumerate(self._devices):
            if uuid in device.uuids:
                said = words(number, ago_s)
                extra = about("device_error", slot=slot, reason=said)
                log.warning("slot %d: the driver says of its GPU: %s", slot, said, extra=extra)


def _error(number: object, at: object) -> tuple[int, float]:
    if type(number) is not int or not isinstance(at, int | float) or not math.isfinite(at):
        raise ValueError("no error")
    return number, float(at)


def _reading(*said: object) -> Reading:
    if len(said) != 4 or not all(each is None or _is_amount(each) for each in said):
        raise ValueError("no reading")
    return Reading(*said)  # type: ignore[arg-type]  # amounts, as was looked at


def _is_amount(said: object) -> bool:
    return isinstance(said, int | float) and not isinstance(said, bool) and 0 <= said < 2**63

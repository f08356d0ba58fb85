"""The driver's own numbers for what went wrong on a GPU, where they can be read. What cannot be read is silence.

    NVML's events, from the moment on at which they were asked for ─┐
    the kernel's log: /dev/kmsg, else klogctl(3) ───────────────────┴─► `Xids.last` ─► `words`: "Xid 79, 3 s earlier: …"

Nothing here waits, but a driver may hang in any call: it is used by `pool.devices.listener` alone.
"""

import ctypes
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

__all__ = ["MEANINGS", "Record", "Xids", "bus_of", "parse", "words"]

# In plain words, after NVIDIA's "XID Errors" (docs.nvidia.com/deploy/xid-errors).
MEANINGS: Mapping[int, str] = {
    13: "a kernel of the program raised an exception, for example because an index was out of bounds",
    31: "the program used an address that it does not own",
    43: "the program's work on the GPU was stopped after an error of its own",
    45: "the driver took the program's work off the GPU after an earlier error, or because the program was killed",
    48: "a memory error of two bits, which cannot be corrected",
    63: "a faulty row or page of memory was marked; a reset of the GPU replaces it",
    74: "an error of NVLink, the connection to another GPU",
    79: "the GPU has fallen off the bus: check power, heat, its slot, and the card itself",
    94: "a memory error that cannot be corrected; it harmed no other program",
    95: "a memory error that cannot be corrected and may have harmed every program there; reset the GPU",
}

_LINE = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+)\b")
_KMSG = re.compile(rb"\d+,\d+,(\d+),[^;]*;(.*)")  # priority, number, microseconds since the start, flags; text
_PRINTED = re.compile(r"^(?:<\d+>)?\[ *(\d+\.\d+)\] ")
_LOG_BYTES = 1 << 20
_RECORD_BYTES = 8192  # the kernel's longest; a shorter read of one fails
_READ_ALL = 3  # SYSLOG_ACTION_READ_ALL
_AGAIN_S = 5.0  # between two reads of the whole log


@dataclass(frozen=True, slots=True)
class Record:
    """`number` of the GPU at `bus`; `at`: seconds since the machine's start, None where that was not told."""

    bus: tuple[int, ...]
    number: int
    at: float | None


def words(number: int, ago_s: float) -> str:
    """For people."""
    meaning = MEANINGS.get(number)
    return f"Xid {number}, {_ago(max(0.0, ago_s))} earlier" + (f": {meaning}" if meaning else "")


def bus_of(text: str) -> tuple[int, ...]:
    """Domain, bus and device of "00000000:3B:00.0" or "0000:3b:00"; () for what is none."""
    try:
        return tuple(int(part, 16) for part in text.partition(".")[0].split(":"))
    except ValueError:
        return ()


def parse(line: str) -> Record | None:
    """A line of `dmesg`, or the text of one; None where it tells of no Xid."""
    found = _LINE.search(line)
    if found is None or not (bus := bus_of(found[1])):
        return None
    printed = _PRINTED.match(line)
    return Record(bus, int(found[2]), None if printed is None else float(printed[1]))


class Xids:
    """The last one of a GPU. Used from one thread."""

    def __init__(self, uuid: str, bus: str, kmsg: str = "/dev/kmsg") -> None:
        """`bus`: where the GPU is, as NVML says it."""
        self._uuid = uuid
        self._bus = bus_of(bus)
        self._last: tuple[float, int] | None = None
        self._events: Any = None  # those of NVML, once it was asked for them
        self._kmsg = kmsg
        self._fd: int | None = None
        self._next = 0.0

    def watch(self, nvml: ModuleType) -> None:
        """What NVML knows of this GPU from now on, and since the last call. Raises nothing that NVML raises."""
        try:
            if self._events is None:
                handle = nvml.nvmlDeviceGetHandleByUUID(self._uuid)
                events = nvml.nvmlEventSetCreate()
                try:
                    nvml.nvmlDeviceRegisterEvents(handle, nvml.nvmlEventTypeXidCriticalError, events)
                except nvml.NVMLError:
                    nvml.nvmlEventSetFree(events)
                    raise
                self._events = events
            while True:  # a time-out is an error too
                told = nvml.nvmlEventSetWait_v2(self._events, 0)
                self._note(int(told.eventData), time.monotonic())
        except (nvml.NVMLError, AttributeError):
            return

    def last(self) -> tuple[float, int] | None:
        """When the last one was, and its number."""
        with suppress(OSError, AttributeError):
            for record in self._logged():
                if record.bus == self._bus and record.at is not None:
                    self._note(record.number, record.at)
        return self._last

    def _note(self, number: int, at: float) -> None:
        if self._last is None or at >= self._last[0]:
            self._last = (at, number)

    def _logged(self) -> Iterator[Record]:
        """What the kernel's log has that was not read yet. Raises `OSError` where it may not be read."""
        try:
            if self._fd is None:
                self._fd = os.open(self._kmsg, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            yield from self._whole_log()
            return
        while True:
            try:
                raw = os.read(self._fd, _RECORD_BYTES)
            except BlockingIOError:
                return
            except BrokenPipeError:
                continue  # it has written over what was to be read
            if not raw:
                return
            found = _KMSG.match(raw)
            record = None if found is None else parse(found[2].decode(errors="replace"))
            if found is not None and record is not None:
                yield Record(record.bus, record.number, int(found[1]) / 1e6)

    def _whole_log(self) -> Iterator[Record]:
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + _AGAIN_S
        buffer = ctypes.create_string_buffer(_LOG_BYTES)
        size = ctypes.CDLL(None, use_errno=True).klogctl(_READ_ALL, buffer, _LOG_BYTES)
        if size > 0:
            for line in buffer.raw[:size].decode(errors="replace").splitlines():
                if (record := parse(line)) is not None:
                    yield record


def _ago(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.0f} h"

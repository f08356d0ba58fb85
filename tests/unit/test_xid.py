"""What the driver says of errors on a GPU, from NVML's events and from the kernel's log."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pool.devices.xid import MEANINGS, Record, Xids, bus_of, parse, words
from support.fake_nvml import FakeNvml

CARD = "GPU-1a000000-0000-4000-8000-000000000000"
BUS = "00000000:1A:00.0"


@pytest.mark.parametrize(
    ("line", "record"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", Record((0, 0x3B, 0), 79, None)),
        ("[12345.678901] NVRM: Xid (PCI:0000:3b:00): 31, Ch 00000010", Record((0, 0x3B, 0), 31, 12345.678901)),
        ("<4>[    1.5] NVRM: Xid (PCI:000a:01:00): 13, pid='<unknown>', name=python", Record((10, 1, 0), 13, 1.5)),
        ("[    7.0] NVRM: Xid (0000:03:00): 45, Ch 00000001", Record((0, 3, 0), 45, 7.0)),
        ("NVRM: Xid (PCI:0000:3b:00): ", None),
        ("NVRM: Xid (PCI:::): 79,", None),
        ("NVRM: GPU at PCI:0000:3b:00: GPU-1a000000", None),
        ("Xid of something else: 79", None),
        ("", None),
    ],
)
def test_a_line_of_the_kernels_log(line: str, record: Record | None) -> None:
    assert parse(line) == record


def test_nvml_and_the_kernel_write_a_bus_in_their_own_ways() -> None:
    assert bus_of("00000000:3B:00.0") == bus_of("0000:3b:00") == (0, 59, 0)
    assert bus_of("") == bus_of("nonsense") == ()


@pytest.fixture
def kmsg(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Makes what gives one record a read, as the kernel's device does: a pipe of packets. Returns its path."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # or nobody could write
    writer = os.open(path, os.O_WRONLY)
    fcntl.fcntl(writer, fcntl.F_SETFL, os.O_DIRECT)

    def say(*records: bytes) -> str:
        for record in records:
            os.write(writer, record)
        return str(path)

    yield say
    os.close(writer)
    os.close(reader)


NOW = time.monotonic()  # of what is told, whenever a test comes to ask


def told(last: tuple[float, int] | None, now: float = NOW) -> str:
    assert last is not None
    return words(last[1], now - last[0])


def record(ago_s: float, text: str) -> bytes:
    return b"4,1234,%d,-;%s\n SUBSYSTEM=pci\n" % ((NOW - ago_s) * 1e6, text.encode())


def test_the_last_one_of_the_gpu_is_told_with_its_age(kmsg: Callable[..., str]) -> None:
    path = kmsg(
        record(300, "NVRM: Xid (PCI:0000:1a:00): 79, pid=7"),
        b"what is this",
        record(130, "NVRM: Xid (PCI:0000:1a:00): 31, pid=7"),
        record(100, "NVRM: Xid (PCI:0000:1b:00): 48, pid=7"),
        record(90, "usb 1-1: new device"),
    )
    xids = Xids(CARD, BUS, path)
    assert told(xids.last()) == f"Xid 31, 2 min earlier: {MEANINGS[31]}"
    kmsg(record(0, "NVRM: Xid (PCI:0000:1a:00): 13, pid=7"))
    assert told(xids.last()) == f"Xid 13, 0 s earlier: {MEANINGS[13]}"


def test_one_without_a_meaning_is_told_by_its_number(kmsg: Callable[..., str]) -> None:
    path = kmsg(record(3, "NVRM: Xid (PCI:0000:1a:00): 4711, pid=7"))
    assert told(Xids(CARD, BUS, path).last()) == "Xid 4711, 3 s earlier"


def test_a_log_that_may_not_be_read_is_silence(tmp_path: Path) -> None:
    assert Xids(CARD, BUS, str(tmp_path / "none")).last() is None, "nor has the machine's own log one of it"
    assert Xids(CARD, BUS, str(tmp_path)).last() is None, "it cannot be read as a file"


def test_an_event_is_told_as_the_device_is_lost(nvml: FakeNvml, pynvml: ModuleType) -> None:
    pynvml.nvmlInit()
    xids = Xids(CARD, BUS)
    xids.watch(pynvml)
    assert xids.last() is None
    nvml.say(CARD, xid=79, error="GPU is lost")
    before = time.monotonic()
    xids.watch(pynvml)
    last = xids.last()
    assert last is not None
    assert before <= last[0] <= time.monotonic()
    assert told(last, last[0]) == f"Xid 79, 0 s earlier: {MEANINGS[79]}"


def test_an_nvml_without_events_is_silence(nvml: FakeNvml, pynvml: ModuleType) -> None:
    nvml.say(CARD, xid=79)
    bare = ModuleType("pynvml")
    bare.__dict__.update({name: value for name, value in vars(pynvml).items() if "Event" not in name})
    bare.nvmlInit()
    xids = Xids(CARD, BUS)
    xids.watch(bare)
    assert xids.last() is None

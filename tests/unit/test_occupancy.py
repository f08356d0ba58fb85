"""What NVML and the kernel tell of a device's memory, and the process that asks them for the pool."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest

from pool.devices.nvml import Nvml, Occupancy, Occupant, occupancy_of, untold
from support.fake_nvml import FakeNvml

GIB = 2**30
CARD = "GPU-88000000-0000-4000-8000-000000000000"
OTHER = "GPU-89000000-0000-4000-8000-000000000000"
MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"

Say = Callable[..., None]


@pytest.fixture
def say(nvml: FakeNvml) -> Say:
    """Makes the fake tell this of a device from now on."""
    return lambda uuid=CARD, **state: nvml.say(uuid, **state)


@pytest.fixture
def opened(pynvml: ModuleType) -> Iterator[ModuleType]:
    pynvml.nvmlInit()
    yield pynvml
    pynvml.nvmlShutdown()
    assert pynvml.open_sessions == 0


def process(proc: Path, pid: int, stat: str, *words: str) -> None:
    (proc / str(pid)).mkdir()
    (proc / str(pid) / "stat").write_text(f"{pid} ({stat.split('|')[0]}) {stat.split('|')[1]}")
    (proc / str(pid) / "cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))


# --- one look


def test_a_device_its_bytes_and_its_processes(opened: ModuleType, say: Say, tmp_path: Path) -> None:
    process(tmp_path, 10, "a) (b|D 1 7 7 0", "python", "train.py")
    say(used=3 * GIB, processes=[[10, 2 * GIB], [11, None]])
    found = occupancy_of(opened, CARD, tmp_path)
    assert found == Occupancy(3 * GIB, (Occupant(10, 2 * GIB, "D", 7), Occupant(11, None)), "", 37 * GIB)


@pytest.mark.parametrize(
    ("parent", "words", "orphan"),
    [
        (1, ("python", "-P", "-m", "workers", "--slot", "0", "--parent", "50", "--visible-devices", "x"), True),
        (50, ("python", "-P", "-m", "workers", "--slot", "0", "--parent", "50", "--visible-devices", "x"), False),
        (1, ("python", "-m", "workers"), False),
        (1, ("python", "-m", "workers", "--parent"), False),
        (1, ("other", "--parent", "50"), False),
        (1, (), False),
    ],
)
def test_a_worker_whose_pool_is_gone_is_an_orphan(
    opened: ModuleType, say: Say, tmp_path: Path, parent: int, words: tuple[str, ...], orphan: bool
) -> None:
    process(tmp_path, 10, f"python|S {parent} 10 10 0", *words)
    say(processes=[[10, GIB]])
    assert occupancy_of(opened, CARD, tmp_path).occupants == (Occupant(10, GIB, "S", 10, orphan),)


def test_what_is_not_told_does_not_hide_the_rest(opened: ModuleType, say: Say) -> None:
    say(used=GIB, no_processes="Not Supported")
    assert occupancy_of(opened, CARD) == Occupancy(GIB, None, "its processes: Not Supported", 39 * GIB)
    say(no_memory="Not Supported", processes=[])
    assert occupancy_of(opened, CARD) == Occupancy(None, (), "its used memory: Not Supported")
    say(error="GPU is lost")
    assert occupancy_of(opened, CARD) == untold("GPU is lost", lost=True)
    assert occupancy_of(opened, "GPU-none") == untold("Not Found", lost=True)


def test_a_mig_instance_has_a_memory_of_its_own(opened: ModuleType, say: Say) -> None:
    say(MIG, used=2 * GIB, processes=[[1 << 22, 2 * GIB]])
    assert occupancy_of(opened, MIG) == Occupancy(2 * GIB, (Occupant(1 << 22, 2 * GIB),), "", 8 * GIB)


def test_a_session_stays_open_while_it_tells_anything(opened: ModuleType, say: Say) -> None:
    session = Nvml()
    assert session.ask([CARD, OTHER])[CARD] == Occupancy(GIB, (), "", 39 * GIB)
    assert opened.open_sessions == 2
    say(error="GPU is lost")
    session.ask([CARD, OTHER])
    assert opened.open_sessions == 2
    say(OTHER, error="GPU is lost")
    assert session.ask([CARD, OTHER]) == dict.fromkeys((CARD, OTHER), untold("GPU is lost", lost=True))
    assert opened.open_sessions == 1, "the driver may have been replaced"


def test_nvml_that_does_not_start_is_an_answer(opened: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    assert opened.open_sessions == 1
    monkeypatch.setenv("FAKE_NVML_FAILS", "init")
    session = Nvml()
    assert session.ask([CARD]) == {CARD: untold("NVML does not start: Driver Not Loaded")}
    session.close()


def test_nvml_that_is_not_installed_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    why = "NVML's Python module is not installed (pip install 'tf-worker-pool[gpu]')"
    assert Nvml().ask([CARD]) == {CARD: untold(why)}


def test_a_loss_is_told_from_other_troubles(opened: ModuleType, say: Say) -> None:
    say(no_memory="GPU is lost", no_processes="Unknown Error")
    assert occupancy_of(opened, CARD) == untold("its used memory: GPU is lost; its processes: Unknown Error", lost=True)
    say(no_memory="Not Supported", no_processes="GPU is lost")
    assert occupancy_of(opened, CARD).lost
    for trouble in ("Unknown Error", "Timeout"):
        say(error=trouble)
        assert not occupancy_of(opened, CARD).lost
    # The driver does not list it any more; a MIG instance may be one that this NVML has never listed.
    assert occupancy_of(opened, "GPU-gone") == untold("Not Found", lost=True)
    assert occupancy_of(opened, "MIG-gone") == untold("Not Found")

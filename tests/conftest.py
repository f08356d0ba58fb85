"""For every test: what pytest's parent ignores does not reach what the tests start, and no clock judges an example.

Several processes share a run, file by file. Each has a runtime folder of its own, so that no two pools meet there.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType

import pytest
from hypothesis import settings

from support.fake_nvml import FakeNvml

IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # subprocess restores these in a child by itself
runtime_folder = pytest.StashKey[str]()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """As good as `SIG_IGN` in this process; but an exec resets a handler, and hands `SIG_IGN` on."""


settings.register_profile("busy", deadline=None)  # an example may take 200 ms otherwise, on whatever machine
settings.load_profile("busy")


def pytest_configure(config: pytest.Config) -> None:
    """A shell's background job ignores Ctrl-C, one of `nohup` the hang-up: so would its pools and their commands."""
    for number in signal.valid_signals() - IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)
    # The terminal that somebody looks at, and the pool that somebody uses, are no business of what the tests start.
    for name in ("LINES", "COLUMNS", "POOL_ENDPOINT"):
        os.environ.pop(name, None)
    # The pid is in the name for a test to see whose it is.
    folder = tempfile.mkdtemp(prefix=f"pt-run-{os.getpid()}-")
    config.stash[runtime_folder] = os.environ["XDG_RUNTIME_DIR"] = folder


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(config.stash.get(runtime_folder, ""), ignore_errors=True)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One process for whom looks at some files, or wants to see what they print: its tests begin at once.

    Else one more than there are cores, for one or the other waits.
    """
    looks = config.option.capture == "no" or any(".py" in name for name in config.option.file_or_dir)
    return 0 if looks else len(os.sched_getaffinity(0)) + 1


@pytest.fixture
def interruptible() -> Iterator[None]:
    """For a test that sends itself SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def nvml(tmp_path: Path) -> FakeNvml:
    return FakeNvml(tmp_path)


@pytest.fixture
def pynvml(nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """What this process imports by that name."""
    return nvml.here(monkeypatch)

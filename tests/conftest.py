"""For every test: what pytest's parent ignores does not reach what the tests start, and no clock judges an example."""

import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType, ModuleType

import pytest
from fake_nvml import FakeNvml
from hypothesis import settings

IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}  # subprocess restores these in a child by itself


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """As good as `SIG_IGN` in this process; but an exec resets a handler, and hands `SIG_IGN` on."""


settings.register_profile("busy", deadline=None)  # an example may take 200 ms otherwise, on whatever machine
settings.load_profile("busy")


def pytest_configure() -> None:
    """A shell's background job ignores Ctrl-C, one of `nohup` the hang-up: so would its pools and their commands."""
    for number in signal.valid_signals() - IGNORED_BY_PYTHON:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)


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

"""What the fake NVML says, to the processes of a pool and to the test's own."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from pool.devices import Discovery, discover_gpus
from support.nvml import pynvml

_FAKE = str(Path(__file__).with_name("nvml"))
CARD, OTHER, THIRD = (f"GPU-{bus}000000-0000-4000-8000-000000000000" for bus in ("1a", "1b", "3d"))  # numbers 0, 1, 2
GIB = 2**30


class FakeNvml:
    def __init__(self, folder: Path) -> None:
        """`environ`: for a process that is to ask it."""
        self._path = folder / "nvml.json"
        self._whole: dict[str, Any] = {}
        self.environ = {"PYTHONPATH": _FAKE, "FAKE_NVML_STATE": str(self._path)}
        self.say(CARD)

    def here(self, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """This process asks it, too. The module, of which nobody has opened a session."""
        for key in ("FAKE_NVML_FAILS", "FAKE_NVML_BYTES"):
            monkeypatch.delenv(key, raising=False)
        monkeypatch.setenv("FAKE_NVML_STATE", str(self._path))
        monkeypatch.setenv("PYTHONPATH", _FAKE, prepend=os.pathsep)  # `pool` asks it in a process of its own
        monkeypatch.setattr(pynvml, "open_sessions", 0)
        monkeypatch.setitem(sys.modules, "pynvml", pynvml)
        return pynvml

    def say(self, uuid: str, **state: object) -> None:
        """From now on this is so of the device; what is left out is as in an idle one."""
        self._whole[uuid] = state
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._whole))
        os.replace(new, self._path)

    def hangs(self) -> bool:
        """Whether a call into it was seen to hang."""
        return self._path.with_suffix(".hangs").exists()


def eight_gpus() -> Discovery:
    """What is found where all of them are idle, for a plan."""
    return discover_gpus(pynvml)


@contextlib.contextmanager
def orphan() -> Iterator[int]:
    """The pid of what looks like a worker whose pool is gone: its command line names another parent than it has."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "workers.py").write_text("import time; print(flush=True); time.sleep(600)")
        command = [sys.executable, "-m", "workers", "--parent", "1"]
        environ = {**os.environ, "PYTHONPATH": folder}
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder, env=environ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            try:
                yield process.pid
            finally:
                process.kill()

"""What the fake NVML of a pool's processes says, and GPU slots with stub workers."""

import json
import os
from pathlib import Path
from typing import Any

FAKES = str(Path(__file__).parent / "fakes")
CARD, OTHER, THIRD = (f"GPU-{bus}000000-0000-4000-8000-000000000000" for bus in ("1a", "1b", "3d"))  # numbers 0, 1, 2
GIB = 2**30


class FakeNvml:
    def __init__(self, folder: Path) -> None:
        self._path = folder / "nvml.json"
        self._whole: dict[str, Any] = {}
        self.environ = {"PYTHONPATH": FAKES, "FAKE_NVML_STATE": str(self._path)}
        self.say(CARD)

    def say(self, uuid: str, **state: object) -> None:
        """From now on this is so of the device; what is left out is as in an idle one."""
        self._whole[uuid] = state
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps(self._whole))
        os.replace(new, self._path)

    def hangs(self) -> bool:
        """Whether a call into it was seen to hang."""
        return self._path.with_suffix(".hangs").exists()

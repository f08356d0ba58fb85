import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
FAKE = ROOT / "tests" / "support" / "nvml"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`told(*gpus, **state)`: what the fake NVML says from now on, here and in children."""
    monkeypatch.syspath_prepend(FAKE)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{FAKE}")
    monkeypatch.setenv("FAKE_NVML_STATE", f"{tmp_path}/state")

    def write(*gpus: dict[str, Any], **state: Any) -> None:
        (tmp_path / "new").write_text(json.dumps({"gpus": gpus, **state}))
        os.replace(tmp_path / "new", tmp_path / "state")

    return write

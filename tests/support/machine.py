"""What pools find on a machine, GPUs of a fake NVML and models with versions on a disk; and what processes hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
NVML = Path(__file__).parent / "nvml"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`told(*gpus, **state)`: what the fake NVML says from now on, here and in children."""
    monkeypatch.syspath_prepend(NVML)
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}:{NVML}")
    monkeypatch.setenv("FAKE_NVML_STATE", f"{tmp_path}/nvml")

    def write(*gpus: dict[str, Any], **state: Any) -> None:
        (tmp_path / "new").write_text(json.dumps({"gpus": gpus, **state}))
        (tmp_path / "new").replace(tmp_path / "nvml")

    return write


class Figures(NamedTuple):
    mib: int
    descriptors: int
    threads: int

    @classmethod
    def of(cls, pid: int) -> "Figures":
        told = Path(f"/proc/{pid}/status").read_text().split()
        mib = int(told[told.index("VmRSS:") + 1]) >> 10
        return cls(mib, len([*Path(f"/proc/{pid}/fd").iterdir()]), int(told[told.index("Threads:") + 1]))


def cards(count: int, *lost: int) -> list[dict[str, Any]]:
    """Equal GPUs, of which NVML has lost some."""
    found = [{"uuid": f"GPU-{n}", "bus": f"0000:{n + 1:02}:00.0", "memory": 16 << 30} for n in range(count)]
    for n in lost:
        found[n]["lost"] = 15
    return found


class Disk:
    """A model with versions, each of which multiplies by another number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def path(self) -> str:
        return f"stub:{self.folder}"

    def write(self, version: int | str, text: str) -> None:
        part = self.folder.parent / f"part-{version}"
        part.mkdir(parents=True)
        (part / "model.stub").write_text(text)
        target = self.folder / str(version)
        target.parent.mkdir(exist_ok=True)
        if target.exists():
            (part / "model.stub").replace(target / "model.stub")
            part.rmdir()
        else:
            part.rename(target)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    made = Disk(tmp_path / "m")
    made.write(1, "double?times=1")
    return made

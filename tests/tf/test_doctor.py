"""`pool doctor` as a user calls it: real processes try the real TensorFlow."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pool.wire.probe import SeenGpu
from support.commands import run_command
from support.fake_nvml import CARD, FakeNvml
from workers.tf.probe import seen_gpu

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(400)]

DOCTOR_S = 300.0
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


def examined(status: int, *options: str, **environ: str) -> dict[str, dict[str, str]]:
    """By name."""
    done = run_command(None, "doctor", "--json", *options, environ={**NO_GPU, **environ}, timeout_s=DOCTOR_S)
    assert done.returncode == status, done
    findings = json.loads(done.stdout)["findings"]
    failed = [each["name"] for each in findings if each["verdict"] == "failed"]
    said = f"pool: 1 check failed: {', '.join(failed)}\n" if status else ""
    assert (done.stderr, len(failed)) == (said, status)
    return {each["name"]: each for each in findings}


def test_on_the_cpu_two_workers_compute_side_by_side(tmp_path: Path) -> None:
    found = examined(0, "--report", str(tmp_path / "report.txt"))
    assert found["TensorFlow"]["verdict"] == found["cpu two workers"]["verdict"] == "ok"
    assert "sees 0 GPUs" in found["TensorFlow"]["seen"]
    assert found["fractions"]["verdict"] == "cannot"
    report = (tmp_path / "report.txt").read_text()
    for each in found.values():
        assert f"{each['verdict']:<8}{each['name']}: {each['seen']}\n" in report
    assert "\nCUDA_VISIBLE_DEVICES=\n" in report
    assert "\nPRINTED: TensorFlow\n" in report


def test_a_gpu_that_tensorflow_does_not_see(nvml: FakeNvml) -> None:
    """NVML lists one that is not there."""
    nvml.say(CARD)
    found = examined(1, **{**nvml.environ, "CUDA_VISIBLE_DEVICES": CARD})
    assert found["TensorFlow"]["verdict"] == "failed"
    assert found["TensorFlow"]["seen"].endswith("sees 0 GPUs, but NVML lists 1")
    assert "pip install 'tf-worker-pool[gpu]'; it printed: " in found["TensorFlow"]["advice"]
    assert found["each GPU"]["seen"] == "TensorFlow sees no GPU"
    assert "cpu two workers" not in found


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("raise ImportError('no libcudart.so.12')", "ImportError: no libcudart.so.12"),
        ("import os; os.kill(os.getpid(), 4)", "its process died: SIGILL"),
    ],
)
def test_a_tensorflow_that_cannot_be_imported(tmp_path: Path, code: str, seen: str) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(code)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH", "")]))
    found = examined(1, PYTHONPATH=path)
    assert (found["TensorFlow"]["verdict"], found["TensorFlow"]["seen"]) == ("failed", seen)
    assert "cpu two workers" not in found


def test_what_tensorflow_calls_a_card() -> None:
    """The words are of `GPUDevice::GetShortDeviceDescription`."""
    said = "device: 0, name: NVIDIA L4, pci bus id: 0000:00:04.0, compute capability: 8.9"
    listed = SimpleNamespace(physical_device_desc=said, memory_limit=5)
    assert seen_gpu(listed) == SeenGpu("0000:00:04.0", "NVIDIA L4", "8.9", 5)
    assert seen_gpu(SimpleNamespace(physical_device_desc="", memory_limit=5)) == SeenGpu("", "", "", 5)

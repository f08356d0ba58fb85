"""`pool doctor` as a user calls it: real processes try the real TensorFlow."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from pool.wire.probe import SeenGpu
from support.commands import in_process, run_command
from workers.tf.probe import seen_gpu

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(400), pytest.mark.doctor]

DOCTOR_S = 300.0


def test_on_the_cpu_two_workers_compute_side_by_side(tmp_path: Path) -> None:
    options, no_gpu = ("--json", "--report", str(tmp_path / "report.txt")), {"CUDA_VISIBLE_DEVICES": ""}
    done = run_command(None, "doctor", *options, environ=no_gpu, timeout_s=DOCTOR_S)
    assert (done.returncode, done.stderr) == (0, "")
    found = {each["name"]: each for each in json.loads(done.stdout)["findings"]}
    assert "failed" not in {each["verdict"] for each in found.values()}
    assert found["TensorFlow"]["verdict"] == found["cpu two workers"]["verdict"] == "ok"
    assert "sees 0 GPUs" in found["TensorFlow"]["seen"]
    assert found["fractions"]["verdict"] == "cannot"
    report = (tmp_path / "report.txt").read_text()
    for each in found.values():
        assert f"{each['verdict']:<8}{each['name']}: {each['seen']}\n" in report
    assert "\nCUDA_VISIBLE_DEVICES=\n" in report
    assert "\nPRINTED: TensorFlow\n" in report


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ("raise ImportError('no libcudart.so.12')", "ImportError: no libcudart.so.12"),
        ("import os; os.kill(os.getpid(), 4)", "its process died: SIGILL"),
    ],
)
def test_a_tensorflow_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, seen: str
) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = in_process("doctor", "--json")
    assert (done.status, done.err) == (1, "pool: 1 check failed: TensorFlow\n")
    found = {each["name"]: each for each in json.loads(done.out)["findings"]}
    assert (found["TensorFlow"]["verdict"], found["TensorFlow"]["seen"]) == ("failed", seen)
    assert "cpu two workers" not in found


def test_what_tensorflow_calls_a_card() -> None:
    """The words are of `GPUDevice::GetShortDeviceDescription`."""
    said = "device: 0, name: NVIDIA L4, pci bus id: 0000:00:04.0, compute capability: 8.9"
    listed = SimpleNamespace(physical_device_desc=said, memory_limit=5)
    assert seen_gpu(listed) == SeenGpu("0000:00:04.0", "NVIDIA L4", "8.9", 5)
    assert seen_gpu(SimpleNamespace(physical_device_desc="", memory_limit=5)) == SeenGpu("", "", "", 5)

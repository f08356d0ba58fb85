"""What helps people: `pool init`, `pool doctor`, and the figures of the last minute."""

import json
import os
import shutil
import tomllib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pool import Client
from pool.cli.doctor import limits
from pool.endpoint import own
from pool.errors import ModelFailed
from support.pools import StartPool, command, row, until

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "workers" / "demo" / "digits"
GPU = {"uuid": "GPU-12345678-0000", "memory": 16 << 30}


def test_init_finds_models_and_writes_what_check_takes(tmp_path: Path) -> None:
    for folder in ("digits", "team/two/1", "team/two/2", ".venv/digits"):
        shutil.copytree(DIGITS, tmp_path / folder)
    for name in ("old.pb", "old.h5", "ckpt-7.meta", "new.keras", "readme.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "circle").symlink_to(tmp_path)
    told = command("init", tmp_path)
    assert "has 6 models" in told
    assert f"pool start --config {tmp_path}/config.toml" in told
    text = (tmp_path / "config.toml").read_text()
    found = {each["name"]: each["path"] for each in tomllib.loads(text)["model"]}
    pairs = "digits=digits new=new.keras old.h5=old.h5 old.pb=old.pb team-two=team/two ckpt-7=ckpt-7.meta"
    assert found == dict(pair.split("=") for pair in pairs.split())
    uncommented = tmp_path / "all.toml"
    uncommented.write_text("\n".join(line.removeprefix("# ") if " = " in line else line for line in text.split("\n")))
    record = json.loads(command("check", "--json", "--config", uncommented, CUDA_VISIBLE_DEVICES=""))
    assert {model["name"] for model in record["models"]} == set(found)

    assert "stays as it is" in command("init", tmp_path, status=1)
    assert (tmp_path / "config.toml").read_text() == text


def test_init_says_what_a_model_is(tmp_path: Path) -> None:
    assert "holds no model; a model is" in command("init", tmp_path, status=1)
    assert "give the folder above it" in command("init", DIGITS, status=1)
    assert not (DIGITS / "config.toml").exists()


Doctor = Callable[..., dict[str, list[str]]]


@pytest.fixture
def doctor(tmp_path: Path, told: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Doctor:
    """The verdict and text of each check, with a fake NVML. `probe`: code in the place of TensorFlow's try."""

    def examine(*gpus: Any, status: int = 0, probe: str = "", timeout: int = 150, **state: Any) -> dict[str, list[str]]:
        told(*gpus, **state)
        if probe:
            (tmp_path / "workers").mkdir()
            (tmp_path / "workers" / "__init__.py").touch()
            (tmp_path / "workers" / "probe.py").write_text(probe)
            monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
        found = json.loads(command("doctor", "--json", "--timeout", timeout, status=status))
        return {each["check"]: [each["verdict"], each["text"]] for each in found}

    return examine


WORKS = "import os, sys; print(f'sees {sys.argv[1]}: {os.environ[\"CUDA_VISIBLE_DEVICES\"]}')"


@pytest.mark.tensorflow
def test_a_gpu_that_tensorflow_does_not_see(doctor: Doctor) -> None:
    found = doctor(GPU, status=1)
    assert found["NVML"] == ["ok", "GPUs that can be used: 1"]
    verdict, text = found["cpu"]
    assert verdict == "ok"
    assert text.startswith("TensorFlow 2.")
    verdict, text = found["gpu:0 (GPU-12345678…)"]
    assert verdict == "failure"
    assert "sees 0 GPUs, but this worker should have 1" in text
    assert "tf-worker-pool[gpu]" in text


def test_each_gpu_is_tried_by_its_uuid(doctor: Doctor) -> None:
    found = doctor(GPU, {"uuid": "GPU-99999999-0000", "bus": "0:2B:00.0", "name": "NVIDIA A100"}, probe=WORKS)
    about_machine = {check: found.pop(check) for check in ("endpoint", "shared memory", "limits")}
    assert {verdict for verdict, _ in about_machine.values()} == {"ok"}
    assert about_machine["endpoint"][1] == own(os.environ, os.getuid())
    assert found == {
        "NVML": ["ok", "GPUs that can be used: 2"],
        "cpu": ["ok", "sees 0:, computes on CPU"],
        "gpu:0 (GPU-12345678…)": ["ok", "sees 1: GPU-12345678-0000, computes on NVIDIA T4"],
        "gpu:1 (GPU-99999999…)": ["ok", "sees 1: GPU-99999999-0000, computes on NVIDIA A100"],
    }


@pytest.mark.parametrize(
    ("probe", "why"),
    [
        ("import time; time.sleep(60)", "TensorFlow is silent for 2 s"),
        ("import os; os.kill(os.getpid(), 9)", "status -9"),
        ("raise ValueError('a product of ones is 3')", "status 1: ValueError: a product of ones is 3"),
    ],
)
def test_a_tensorflow_that_does_not_work(doctor: Doctor, probe: str, why: str) -> None:
    verdict, text = doctor(status=1, probe=probe, timeout=2 if "sleep" in probe else 150)["cpu"]
    assert verdict == "failure"
    assert why in text


def test_memory_that_does_not_come_back(doctor: Doctor) -> None:
    state = json.dumps({"gpus": [GPU | {"used": 5 << 30}]})
    keeps = f"import os; open(os.environ['FAKE_NVML_STATE'], 'w').write({state!r})"
    verdict, text = doctor(GPU, status=1, probe=keeps, timeout=5)["gpu:0 (GPU-12345678…)"]
    assert verdict == "failure"
    assert "5.4 GB are not free again" in text


def test_a_container_with_fewer_cores_than_it_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("2000000000\n")
    monkeypatch.setitem(limits.__globals__, "CGROUPS", tmp_path)
    told = limits()
    assert told.startswith("2.0 GB memory, 0.5 cores, ")
    assert told.endswith("TF_NUM_INTRAOP_THREADS to 1")


def test_a_driver_that_fails_hides_nothing_else(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # so a GPU is wanted
    found = doctor(status=1, probe=WORKS, fails="Driver/library version mismatch")
    verdict, text = found["NVML"]
    assert verdict == "failure"
    assert "Driver/library version mismatch" in text
    assert found["cpu"][0] == "ok"


def test_status_is_of_the_last_minute_and_counts_since_the_start(
    start_pool: StartPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = "import pool.serve.questions\npool.serve.questions.LATELY_S = 2\n"  # the minute
    (tmp_path / "sitecustomize.py").write_text(short)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    running = start_pool('[pool]\ndevices = ["cpu"]\n[[model]]\nname = "m"\npath = "stub:double"\n')
    with Client(running.endpoint) as client:

        def figures() -> Any:
            return client.status()["models"][0]

        client.run("m", row())
        with suppress(ModelFailed):
            client.run("m", row(-1.0))
        now = figures()
        assert (now["done"], now["errors"], now["recent_errors"]) == (1, {"ModelFailed": 1}, {"ModelFailed": 1})
        assert now["rate"] > 0
        assert now["p50_s"] is not None
        later = until(lambda: not (each := figures())["rate"] and each, "the end of its minute")
        assert (later["done"], later["errors"], later["recent_errors"]) == (1, {"ModelFailed": 1}, {})
        assert later["p50_s"] is None

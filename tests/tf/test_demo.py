"""The shipped demo: its model answers its samples, and all of TensorFlow's start is quiet."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import workers.tf.demo
from pool.processes.output import is_noise

pytestmark = pytest.mark.tensorflow

DEMO = Path(workers.tf.demo.__file__).parent
ROOT = DEMO.parents[2]


@pytest.fixture
def digits(load):
    return load(DEMO / "digits")


def test_its_signature(digits):
    assert list(digits.info.signatures) == ["serving_default"]
    signature = digits.info.signatures["serving_default"]
    assert {name: str(spec) for name, spec in signature.inputs.items()} == {"pixels": "float32 [?, 64]"}
    assert {name: str(spec) for name, spec in signature.outputs.items()} == {
        "label": "int64 [?]",
        "probabilities": "float32 [?, 10]",
    }
    assert not digits.info.stateful


def test_it_predicts_the_shipped_samples(digits):
    samples = json.loads((DEMO / "samples.json").read_text())
    assert len(samples) == 12
    pixels = np.array([sample["pixels"] for sample in samples], np.float32)
    answer = digits.run("serving_default", {"pixels": pixels}, ["label", "probabilities"])
    assert answer["label"].tolist() == [sample["label"] for sample in samples]
    np.testing.assert_allclose(answer["probabilities"].sum(axis=1), 1.0, atol=1e-5)


def test_seven_is_a_seven(digits):
    pixels = np.array([json.loads((DEMO / "seven.json").read_text())], np.float32)
    assert digits.run("serving_default", {"pixels": pixels}, ["label"])["label"].tolist() == [7]


def test_its_accuracy_on_what_it_was_not_trained_on(digits):
    pytest.importorskip("sklearn", reason="scikit-learn has the data")
    from workers.tf.demo.train import split

    _, _, pixels, labels = split()
    predicted = digits.run("serving_default", {"pixels": pixels}, ["label"])["label"]
    assert np.mean(predicted == labels) >= 0.97


def test_it_is_small():
    assert sum(file.stat().st_size for file in DEMO.rglob("digits/**/*") if file.is_file()) < 200_000


def test_import_load_and_run_print_only_what_the_pool_drops():
    program = """
import json, logging, pathlib, numpy as np
from workers.tf.backend import TensorFlowBackend
from pool.processes.output import is_noise
from pool.wire.worker_messages import ModelSettings, TensorFlowSettings
backend = TensorFlowBackend(TensorFlowSettings(True, 0.0, True, False, 0, 0, {}, False), 0)
model = backend.load(ModelSettings("digits", "workers/tf/demo/digits", True))
model.warm_up()
pixels = np.array([json.loads(pathlib.Path("workers/tf/demo/seven.json").read_text())], np.float32)
print(model.run("serving_default", {"pixels": pixels}, ["label"])["label"][0])
"""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90
    )
    assert (done.stdout, done.returncode) == ("7\n", 0)
    assert [line for line in done.stderr.splitlines() if not is_noise(line, on_gpu=False)] == []

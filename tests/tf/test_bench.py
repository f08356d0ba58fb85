"""`pool bench compare` with TensorFlow in the process that it compares with."""

import json

import numpy as np
import pytest

from pool.config.load import demo_folder
from support.commands import run_command
from support.pool_process import pool_process, stub_config
from workers.inprocess import DEFAULTS
from workers.tf.library import tf
from workers.tf.session import config_proto

pytestmark = [pytest.mark.tensorflow, pytest.mark.bench]


def test_the_default_config_is_tensorflows_own() -> None:
    made = config_proto(DEFAULTS)
    assert made.gpu_options == tf.compat.v1.GPUOptions()
    made.ClearField("gpu_options")  # there, and empty
    assert made == tf.compat.v1.ConfigProto()


def test_a_plain_run_gives_what_the_callable_gives(load) -> None:
    digits = load(demo_folder() / "digits")
    feeds = {"pixels": np.random.default_rng(1).random((3, 64), np.float32)}
    outputs = ["label", "probabilities"]
    plain, prepared = (run("serving_default", feeds, outputs) for run in (digits.run_plainly, digits.run))
    assert plain.keys() == prepared.keys()
    for name in outputs:
        np.testing.assert_array_equal(plain[name], prepared[name])


@pytest.mark.timeout(240)  # TensorFlow is imported three times, by as many processes at once
def test_session_run_and_the_pool_take_turns() -> None:
    model = f'[[model]]\nname = "digits"\npath = "{demo_folder() / "digits"}"\ndevices = "all"\n'
    argv = ["bench", "compare", "digits", "--duration", "3", "--in-flight", "8", "--json"]
    with pool_process(stub_config(models=model)) as pool:
        done = run_command(pool, *argv, timeout_s=200)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    names = [way["way"] for way in found["ways"]]
    assert names[:2] == ["Session.run in a process", "prepared callable in a process"]
    assert names[-2:] == ["pool, 1 in flight", "pool, 8 in flight"]
    assert found["rounds"] == 5
    assert all(way["jobs_per_s"] > 0 for way in found["ways"])
    # What a prepared callable is for; by how much it is faster depends on the machine.
    assert found["ways"][1]["p50_ratio"] < 1

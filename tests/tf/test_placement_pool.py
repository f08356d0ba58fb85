"""Models with devices of their own, each in its process, and `pool placement` of them through a pool."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pool import Client, errors
from support.commands import run_command
from support.pool_process import PoolProcess, pool_process, stub_config

pytestmark = [pytest.mark.tensorflow, pytest.mark.models]

MODELS = """
[[model]]
name = "placed"
path = "{keras}"
tensorflow = {{ device_count = {{ CPU = 2 }} }}
layer_devices = [{{ layers = ".*/dense(_\\\\d+)*/.*", device = "/cpu:1" }}]

[[model]]
name = "twice"
path = "{keras}"
tensorflow = {{ device_count = {{ CPU = 2 }} }}
copy_per_device = true

[[model]]
name = "spread"
path = "{keras}"
tensorflow = {{ device_count = {{ CPU = 2 }} }}
layer_devices = "least-loaded"

[[model]]
name = "plain"
path = "{keras}"

[[model]]
name = "counter"
path = "{counter}"
"""


@pytest.fixture(scope="module")
def pool(keras_export: Path, counter: Path) -> Iterator[PoolProcess]:
    models = MODELS.format(keras=keras_export, counter=counter)
    with pool_process(stub_config(devices='["cpu"]', models=models)) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def test_each_worker_has_the_devices_that_its_models_ask_for(client: Client) -> None:
    assert [slot.models for slot in client.status().slots] == [
        ("plain", "counter"),
        ("placed", "twice", "spread"),
    ]
    placed, plain = client.placement("placed"), client.placement("plain")
    assert (placed.slot, placed.devices) == (1, ("/cpu:0", "/cpu:1"))
    assert (plain.slot, plain.device, plain.devices) == (0, "cpu:0", ("/cpu:0",))
    x = np.ones((3, 4), np.float32)
    for name, value in client.run("placed", x).items():
        np.testing.assert_allclose(value, client.run("plain", x)[name], rtol=1e-6)


def test_a_model_has_a_copy_on_each_device_or_is_spread_over_them(client: Client) -> None:
    x = np.arange(20, dtype=np.float32).reshape(5, 4) / 20
    plain = client.run("plain", x)
    for model in ("twice", "spread"):
        for name, value in client.run(model, x).items():
            np.testing.assert_allclose(value, plain[name], rtol=1e-6)
    nodes = client.placement("twice").signatures["serving_default"].nodes
    variables = [node.device for node in nodes if node.op == "VarHandleOp"]
    assert variables.count("/cpu:0") == variables.count("/cpu:1") > 0
    rules = client.placement("spread").rules
    assert [rule.layers for rule in rules] == ["least-loaded"] * 2
    with client.session("twice") as session, pytest.raises(errors.InvalidInput):
        session.run("nothing:0")


def test_what_ran_where_is_printed(pool: PoolProcess, client: Client) -> None:
    found = client.placement("placed")
    (rule,) = found.rules
    assert (rule.kept, rule.device, rule.elsewhere) == (True, "/cpu:1", ())
    nodes = found.signatures["serving_default"].nodes
    assert {node.device for node in nodes if node.rule == 0} == {"/cpu:1"}
    assert {node.op for node in nodes if node.rule == 0} >= {"MatMul", "Relu", "ReadVariableOp", "VarHandleOp"}
    printed = run_command(pool, "placement", "placed", "--device", "slot:1")
    lines = printed.stdout.splitlines()
    assert lines[0] == "placed is on 1 device: cpu:0; it is on every device", printed.stderr
    assert lines[1] == "placed in slot 1 (cpu:0), which has /cpu:0, /cpu:1"
    assert ["/cpu:1", "MatMul"] in [line.split()[:2] for line in lines]
    assert lines[-1].endswith("yes")


def test_what_keeps_state_is_left_alone(client: Client) -> None:
    before = client.run("counter", 0, signature="peek")["count"]
    told = client.placement("counter").signatures
    assert told["serving_default"].why == "it may change the model's state"
    assert told["peek"].nodes
    assert client.run("counter", 0, signature="peek")["count"] == before


def test_of_no_such_model_or_place_nothing_is_told(client: Client) -> None:
    with pytest.raises(errors.ModelNotFound, match="place"):
        client.placement("place")
    with pytest.raises(errors.InvalidInput, match="slot:0"):
        client.placement("placed", device="slot:0")
    with pytest.raises(errors.InvalidInput, match=r"Model\.placement takes nothing"):
        client.run("placed", {"x": 1.0}, signature="Model.placement")

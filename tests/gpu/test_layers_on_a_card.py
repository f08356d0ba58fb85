"""A real card: rules put layers of one model on the CPU and on the GPU, and the trace of a run shows it."""

from pathlib import Path

import numpy as np

from support import gpu_card
from support.gpu_card import DEVICES, UP_S, started
from support.pool_process import PoolProcess, stub_config

pytestmark = gpu_card.marks


def test_layers_run_where_the_rules_say(models: Path) -> None:
    model = f'[[model]]\nname = "{{}}"\npath = "{models / "layers"}"\n'
    rule = 'layer_devices = [{ layers = ".*second.*", device = "/cpu:0" }]\n'
    pool = started(stub_config(devices=DEVICES, models=model.format("placed") + rule + model.format("plain")))
    try:
        with pool.client() as client:
            found = client.placement("placed", timeout=UP_S)
            assert found.devices == ("/cpu:0", "/gpu:0")
            [told] = found.rules
            assert (told.kept, told.device, told.elsewhere) == (True, "/cpu:0", ())
            nodes = [node for node in found.signatures["serving_default"].nodes if node.op == "MatMul"]
            assert {node.device for node in nodes if node.rule == 0} == {"/cpu:0"}, nodes
            assert {node.device for node in nodes if node.rule is None} == {"/gpu:0"}, nodes
            x = np.random.default_rng(1).normal(size=(8, 64)).astype(np.float32)
            for name, value in client.run("placed", x, timeout=UP_S).items():
                plain = client.run("plain", x, timeout=UP_S)[name]
                np.testing.assert_allclose(value, plain, rtol=1e-2, atol=1e-3)  # a card may multiply in TF32
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_a_layer_without_a_kernel_for_the_card_is_an_error_where_it_may_not_go_elsewhere(models: Path) -> None:
    model = f'[[model]]\nname = "words"\npath = "{models / "words"}"\n'
    rule = 'layer_devices = [{ layers = ".*measure.*", device = "/gpu:0" }]\n'
    rest = "[tensorflow]\nallow_soft_placement = false\n"
    pool = PoolProcess(stub_config(devices=DEVICES, models=model + rule, rest=rest)).start()
    try:
        # It is found when the model is loaded or warmed up, or, at the latest, by a job.
        gpu_card.eventually_said(pool, ("ready:", "no slot is left that could serve"))
        if "ready:" in pool.text():
            with pool.client() as client:
                error = client.submit("words", np.array([b"word"], object), timeout=UP_S).exception(UP_S)
                text = f"{type(error).__name__}: {error}"
        else:
            assert pool.wait(60) == 3
            text = pool.text()
        assert "StringLength" in text or "measure" in text, text[-3000:]
        assert "kernel" in text, text[-3000:]
        assert "GPU" in text, text[-3000:]
    finally:
        pool.kill()


def test_with_soft_placement_it_runs_on_the_cpu_and_that_is_said(models: Path) -> None:
    model = f'[[model]]\nname = "words"\npath = "{models / "words"}"\n'
    rule = 'layer_devices = [{ layers = ".*measure.*", device = "/gpu:0" }]\n'
    pool = started(stub_config(devices=DEVICES, models=model + rule))
    try:
        with pool.client() as client:
            words = np.array([b"a", b"word"], object)
            assert client.run("words", words, timeout=UP_S)["length"].tolist() == [1, 4]
            [told] = client.placement("words", timeout=UP_S).rules
            assert told.kept is False
            assert {each.device for each in told.elsewhere} <= {"/cpu:0"}
        assert pool.stop() == 0
    finally:
        pool.kill()

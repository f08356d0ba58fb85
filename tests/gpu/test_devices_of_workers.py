"""A real card: a worker that has another one than the pool said does not serve; what is not there is said."""

import os

import pytest

from pool.config.load import demo_folder
from pool.devices import discover_gpus
from support import gpu_card
from support.gpu_card import UP_S
from support.pool_process import PoolProcess, stub_config

pytestmark = gpu_card.marks

DIGITS = f'[[model]]\nname = "digits"\npath = "{demo_folder() / "digits"}"\ndevices = "all"\n'
NOWHERE = "MIG-00000000-0000-4000-8000-000000000000"


def test_a_worker_that_does_not_see_what_it_was_promised_does_not_serve() -> None:
    """The pool believes a MIG instance that NVML does not list; TensorFlow does not find it."""
    config = stub_config(devices=f'["{NOWHERE}"]', models=DIGITS, rest='[health]\ndevice_free_timeout = "off"\n')
    if any(gpu.instances for gpu in discover_gpus().gpus):
        pytest.skip("NVML lists MIG instances, so one that it does not is refused before")
    pool = PoolProcess(config).start()
    try:
        assert pool.wait(UP_S) == 3
        text = pool.text()
        assert "WRONG_DEVICES" in text
        assert "sees 0 GPUs, but this worker should have 1" in text
        assert f"CUDA_VISIBLE_DEVICES is '{NOWHERE}'" in text
    finally:
        pool.kill()


def test_a_pool_of_a_hidden_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", "")
    pool = PoolProcess(stub_config(devices="[0]", models=DIGITS)).start()
    try:
        assert pool.wait(60) == 2
        assert "CUDA_VISIBLE_DEVICES='' leaves the pool no GPU" in pool.text()
    finally:
        pool.kill()

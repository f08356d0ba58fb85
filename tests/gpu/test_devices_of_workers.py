"""A real card: each worker has the one that the pool said, and no other; what is not there is said."""

import os
from pathlib import Path

import numpy as np
import pytest

from pool.config.demo import demo_folder
from pool.devices import discover_gpus
from support import gpu_card
from support.gpu_card import UP_S, Card, slot, started
from support.pool_process import PoolProcess, stub_config
from support.processes import pid_of

pytestmark = gpu_card.marks

DIGITS = f'[[model]]\nname = "digits"\npath = "{demo_folder() / "digits"}"\ndevices = "all"\n'
NOWHERE = "MIG-00000000-0000-4000-8000-000000000000"


def environ(pid: int) -> dict[str, str]:
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def test_each_worker_sees_one_gpu_the_right_one_by_uuid(card: Card) -> None:
    """And NVML agrees, where it tells pids of this pid namespace."""
    gpus = discover_gpus().gpus
    whole = [gpu for gpu in gpus if gpu.instances is None]
    if len(whole) < len(gpus):
        pytest.skip("a card is in MIG mode")
    before = card.listed()
    pool = started(stub_config(devices='"auto"', models=DIGITS))
    try:
        with pool.client() as client:
            slots = client.status().slots
            assert [found.uuids for found in slots] == [(gpu.uuid,) for gpu in whole]
            for found in slots:
                assert environ(pid_of(found))["CUDA_VISIBLE_DEVICES"] == found.uuids[0]
                where = f"slot:{found.slot}"
                assert client.placement("digits", device=where, timeout=UP_S)["devices"] == ["/cpu:0", "/gpu:0"]
            new = card.listed() - before
            if new and new & {found.pid for found in slots}:
                assert new == {slot(client).pid}, "the other cards' workers are not on this one"
        assert pool.stop() == 0
    finally:
        pool.kill()


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


def test_the_card_computes_what_the_cpu_does() -> None:
    pool = started(stub_config(devices='[0, "cpu"]', models=DIGITS))
    try:
        with pool.client() as client:
            pixels = np.random.default_rng(1).uniform(0, 16, (32, 64)).astype(np.float32)
            found = [client.run("digits", pixels, device=device, timeout=UP_S) for device in ("gpu:0", "cpu:0")]
            np.testing.assert_allclose(found[0]["probabilities"], found[1]["probabilities"], rtol=1e-2, atol=1e-3)
        assert pool.stop() == 0
    finally:
        pool.kill()

"""A real card: what workers take of it is what they were allowed, and what they need, and comes back."""

from pathlib import Path

import numpy as np

from pool.config.demo import demo_folder
from support import gpu_card
from support.gpu_card import DEVICES, UP_S, Card, started, steady
from support.gpu_models import WEIGHTS_MIB
from support.pool_process import stub_config
from support.processes import eventually

pytestmark = gpu_card.marks

GIB = 1 << 30
WEIGHTS = WEIGHTS_MIB << 20
CONTEXT = 2 * GIB  # of CUDA, its libraries and their kernels, a process
DIGITS = f'[[model]]\nname = "digits"\npath = "{demo_folder() / "digits"}"\n'
HALF = "[tensorflow]\nallow_growth = false\nper_process_gpu_memory_fraction = 0.4\n"
PIXELS = np.zeros((1, 64), np.float32)


def test_two_workers_share_a_card_by_fractions(card: Card) -> None:
    before = steady(card.used)
    config = stub_config(devices=DEVICES, extra_pool="workers_per_device = 2", models=DIGITS, rest=HALF)
    pool = started(config)
    try:
        with pool.client() as client:
            slots = client.status().slots
            assert [found.device for found in slots] == ["gpu:0", "gpu:0"]
            assert [found.state for found in slots] == ["READY", "READY"]
            for number in range(2):
                assert client.run("digits", PIXELS, device=f"slot:{number}", timeout=UP_S)["label"].shape == (1,)
            taken = steady(card.used) - before
            assert 0.35 * card.total() < taken < 0.4 * card.total() + 2 * CONTEXT, f"{taken / GIB:.1f} GiB"
        assert pool.stop() == 0
    finally:
        pool.kill()


def test_memory_that_grows_stays_near_what_the_model_needs(card: Card, models: Path) -> None:
    before = steady(card.used)
    heavy = f'[[model]]\nname = "heavy"\npath = "{models / "heavy"}"\n'
    pool = started(stub_config(devices=DEVICES, models=heavy))
    try:
        with pool.client() as client:
            assert client.run("heavy", np.zeros(4, np.int32), timeout=UP_S)["first"].tolist() == [0.0] * 4
            taken = steady(card.used) - before
            # TensorFlow's allocator grows by doubling.
            assert WEIGHTS < taken < 2 * WEIGHTS + CONTEXT, f"{taken / GIB:.1f} GiB for {WEIGHTS / GIB:.1f} of weights"
        assert pool.stop() == 0
    finally:
        pool.kill()
    eventually(lambda: card.used() <= before + (256 << 20), 30)


def test_unloading_a_model_gives_its_memory_back_to_the_driver(card: Card, models: Path) -> None:
    pool = started(stub_config(devices=DEVICES, models=DIGITS))
    try:
        with pool.client() as client:
            alone = steady(card.used)
            client.load("heavy", str(models / "heavy"))
            eventually(lambda: not client.status().rolling_update.left, UP_S)
            assert client.run("heavy", np.zeros(1, np.int32), timeout=UP_S)["first"].tolist() == [0.0]
            both = steady(card.used)
            assert both - alone > 0.9 * WEIGHTS
            client.unload("heavy")
            eventually(lambda: not client.status().rolling_update.left, UP_S)
            eventually(lambda: card.used() <= alone + (512 << 20), 60)
            assert client.run("digits", PIXELS, timeout=UP_S)["label"].shape == (1,)
        assert pool.stop() == 0
    finally:
        pool.kill()

"""A real card: what a model takes of it comes back when the model is unloaded."""

from pathlib import Path

import numpy as np

from pool.config.load import demo_folder
from support import gpu_card
from support.gpu_card import DEVICES, UP_S, Card, started, steady
from support.gpu_models import WEIGHTS_MIB
from support.pool_process import stub_config
from support.processes import eventually

pytestmark = gpu_card.marks

WEIGHTS = WEIGHTS_MIB << 20
DIGITS = f'[[model]]\nname = "digits"\npath = "{demo_folder() / "digits"}"\n'
PIXELS = np.zeros((1, 64), np.float32)


def test_unloading_a_model_gives_its_memory_back_to_the_driver(card: Card, models: Path) -> None:
    pool = started(stub_config(devices=DEVICES, models=DIGITS))
    try:
        with pool.client() as client:
            alone = steady(card.used)
            client.load("heavy", str(models / "heavy"), wait=False)
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

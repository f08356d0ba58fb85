"""A real card: what the pool costs beside a bare Session, and what the second lane is for. `-s` shows the ratios."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from support import gpu_card
from support.gpu_card import DEVICES, UP_S, BareSession, beside_a_bare_session, runs_a_second, started
from support.gpu_models import SIDE, WIDTH, batches
from support.pool_process import stub_config

pytestmark = gpu_card.marks

ROWS = 64
MEASURE_S = 10.0
ROUNDS = 5

Record = Callable[[str, object], None]


def told(what: str, ratio: float, record: Record) -> None:
    record(what, f"{ratio:.3f}")
    print(f"{what}: {ratio:.2f}")  # noqa: T201  # pytest -s shows it


def test_a_resnet_through_the_pool_is_about_as_fast_as_in_a_bare_session(
    models: Path, record_property: Record, tmp_path: Path
) -> None:
    model = f'[[model]]\nname = "resnet"\npath = "{models / "resnet"}"\nmax_batch = {ROWS}\n'
    pool = started(stub_config(devices=DEVICES, models=f"{model}allowed_batch_sizes = [2, {ROWS}]\n"))
    try:
        with pool.client() as client, BareSession(models / "resnet", ROWS, tmp_path / "bare.log") as bare:
            halves = client.run("resnet", np.full((2, SIDE, SIDE, 3), 0.5, np.float32), timeout=UP_S)
            for name, value in bare.answers.items():
                np.testing.assert_allclose(halves[name], np.asarray(value, np.float32), rtol=1e-2, atol=1e-4)
            inputs = batches((ROWS, SIDE, SIDE, 3))
            found = beside_a_bare_session(client, bare, "resnet", inputs, MEASURE_S / 2, ROUNDS)
        assert pool.stop() == 0
    finally:
        pool.kill()
    what = f"ResNet-50, batches of {ROWS}, eight in flight, the pool against a bare Session in the same round"
    told(what, found.median, record_property)
    record_property("lowest and highest", f"{found.low:.3f} {found.high:.3f}")
    assert found.median >= 0.8


def test_two_lanes_copy_while_one_of_them_computes(models: Path, record_property: Record) -> None:
    inputs = batches((512, WIDTH))
    rates = []
    for lanes in (1, 2):
        model = f'[[model]]\nname = "wide"\npath = "{models / "wide"}"\nmax_batch = 512\n'
        pool = started(stub_config(devices=DEVICES, extra_pool=f"lanes = {lanes}", models=model))
        try:
            with pool.client() as client:
                client.run("wide", inputs[0], timeout=UP_S)
                rates.append(runs_a_second(client, "wide", inputs, MEASURE_S))
            assert pool.stop() == 0
        finally:
            pool.kill()
    told("inputs of 16 MiB, two lanes against one", rates[1] / rates[0], record_property)
    # How much they overlap is the card's and its bus's affair; that two are no worse is ours.
    assert rates[1] >= 0.95 * rates[0]

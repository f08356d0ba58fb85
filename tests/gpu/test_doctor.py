"""A real card: what `pool doctor` checks holds on it. Those checks that need no test tools are the doctor's own."""

import os
from collections.abc import Mapping

import pytest

from pool.config import Settings, demo_folder, with_demo
from pool.devices import discover_gpus
from pool.doctor import Machine, Verdict, examine
from support import gpu_card

pytestmark = gpu_card.marks

OF_THE_CARD = (
    *("NVML", "TensorFlow", "CUDA", "PCI order", "gpu:0", "gpu:0 computes", "gpu:0 memory that grows"),
    *("gpu:0 memory that comes back", "gpu:0 fractions", "gpu:0 two workers", "memory at the end"),
)


@pytest.fixture(scope="module")
def found() -> Mapping[str, Verdict]:
    said = list(examine(Machine(dict(os.environ), with_demo(Settings(), demo_folder() / "digits"))))
    for each in said:
        print(f"{each.verdict.value:<8}{each.name}: {each.seen}")  # noqa: T201  # pytest -s shows it
    return {each.name: each.verdict for each in said}


def test_nothing_is_wrong(found: Mapping[str, Verdict]) -> None:
    assert [name for name, verdict in found.items() if verdict is Verdict.FAILED] == []


def test_each_check_of_the_first_card_could_be_made(found: Mapping[str, Verdict]) -> None:
    if discover_gpus().gpus[0].instances is not None:
        pytest.skip("the card is in MIG mode")
    assert [name for name in OF_THE_CARD if found.get(name, Verdict.CANNOT) is Verdict.CANNOT] == []

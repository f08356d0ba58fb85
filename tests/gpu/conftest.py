"""The card, and models that a child process makes once."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.gpu_card import MODELS, Card, without_gpu


@pytest.fixture
def card() -> Iterator[Card]:
    card = Card()
    yield card
    card.close()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gpu-models")
    made = without_gpu(str(MODELS), str(folder))
    assert made.returncode == 0, made.stderr[-3000:]
    return folder

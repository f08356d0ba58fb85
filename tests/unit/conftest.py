from collections.abc import Iterator
from pathlib import Path

import pytest

from support.fake_pool import FakePool


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakePool]:
    """The pool's side of a client's socket, played by the test."""
    pool = FakePool(tmp_path)
    yield pool
    pool.close()

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pool.client.client import Client


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[tuple[str, int]]:
    """A pool with the demo model in one worker: its endpoint and its pid."""
    endpoint = f"ipc://{tmp_path}/pool.sock"
    process = subprocess.Popen(
        [sys.executable, "-m", "pool", "start", "--workers", "1"],
        env={**os.environ, "POOL_ENDPOINT": endpoint, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert b"ready:" in process.stderr.readline()
    yield endpoint, process.pid
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    process.stderr.close()


@pytest.fixture
def client(pool: tuple[str, int]) -> Client:
    return Client(pool[0])

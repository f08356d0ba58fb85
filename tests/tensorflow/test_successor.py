"""A rolling restart of a pool with one slot, with TensorFlow: the import and the load are nobody's wait."""

import subprocess
import sys
import time

import pytest

from harness import alive, eventually, pool_process, stub_config
from pool.demo import demo_folder

pytestmark = [pytest.mark.tensorflow, pytest.mark.long]


def test_nobody_waits_for_an_import() -> None:
    models = f'[[model]]\nname = "digits"\npath = "{demo_folder() / "digits"}"\n'
    with pool_process(stub_config(devices='["cpu"]', models=models)) as pool, pool.client() as client:
        (former,) = pool.workers()
        rolling = [sys.executable, "-P", "-m", "pool", "restart", "--rolling", "--endpoint", pool.endpoint]
        began = time.monotonic()
        restart = subprocess.Popen(rolling, stdout=subprocess.DEVNULL)
        last, longest_s, answers = began, 0.0, 0
        while restart.poll() is None:
            assert client.run("digits", [[0.0] * 64], timeout=60)["label"].shape == (1,)
            longest_s = max(longest_s, time.monotonic() - last)
            last, answers = time.monotonic(), answers + 1
            assert last < began + 300
        assert restart.wait() == 0
        assert client.status()["slots"][0]["incarnation"] == 2
        assert longest_s < (last - began) / 3, f"{answers} answers, {longest_s:.2f} s of {last - began:.1f} without one"
        eventually(lambda: former not in pool.workers() or not alive(former))  # it may still be leaving

"""A rolling restart of a pool with one slot, with TensorFlow: the import and the load are nobody's wait."""

import subprocess

import pytest

from pool.config.load import demo_folder
from support.commands import command_line
from support.pool_process import pool_process, stub_config
from support.processes import alive, eventually

pytestmark = [pytest.mark.tensorflow, pytest.mark.replacement]


def test_nobody_waits_for_an_import() -> None:
    models = f'[[model]]\nname = "digits"\npath = "{demo_folder() / "digits"}"\n'
    with pool_process(stub_config(devices='["cpu"]', models=models)) as pool, pool.client() as client:
        (former,) = pool.workers()
        rolling = command_line(pool, "restart", "--rolling")
        restart = subprocess.Popen(rolling, stdout=subprocess.DEVNULL)
        queued_s: list[float] = []  # each job, as the pool says
        took_s: dict[str, float] = {}  # the replacement, in each of its states, as the pool says
        while restart.poll() is None:
            future = client.submit("digits", [[0.0] * 64], timeout=60)
            assert future.result()["label"].shape == (1,)
            assert future.timeline is not None
            queued_s.append(future.timeline.queue_s)
            if replacement := client.status().slots[0].replacement:
                took_s[replacement.state] = replacement.state_s
        assert restart.wait() == 0
        assert client.status().slots[0].incarnation == 2
        assert {"STARTING", "LOADING"} <= took_s.keys(), "jobs were answered while it got ready"
        assert max(queued_s) < sum(took_s.values()) / 3, f"{len(queued_s)} answers; {took_s}"
        eventually(lambda: former not in pool.workers() or not alive(former))  # it may still be leaving

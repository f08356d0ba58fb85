"""The body of tests/gpu/test_throughput.py on the CPU: a small model, and what a card would be measured with."""

import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from support import gpu_models
from support.gpu_card import MODELS, BareSession, beside_a_bare_session, without_gpu
from support.gpu_models import IN_FLIGHT, Flight, batches
from support.pool_process import PoolProcess, stub_config

pytestmark = [pytest.mark.tensorflow, pytest.mark.timeout(300)]

ROWS = 16
ROUNDS = 2
SHORT_S = 0.5
FULL_S = 20.0


@pytest.mark.bench
def test_a_pool_and_a_bare_session_take_turns_with_eight_in_flight(tmp_path: Path) -> None:
    made = without_gpu(str(MODELS), str(tmp_path), "layers")
    assert made.returncode == 0, made.stderr[-3000:]
    model = f'[[model]]\nname = "layers"\npath = "{tmp_path / "layers"}"\nmax_batch = {ROWS}\n'
    pool = PoolProcess(stub_config(devices='["cpu"]', models=model)).start()
    try:
        pool.await_ready()
        with pool.client() as client, BareSession(tmp_path / "layers", ROWS, tmp_path / "bare.log") as bare:
            halves = client.run("layers", np.full((2, 64), 0.5, np.float32))
            assert halves.keys() == bare.answers.keys()
            for name, value in bare.answers.items():
                np.testing.assert_allclose(halves[name], np.asarray(value, np.float32), rtol=1e-4)
            before = jobs_done(pool)
            found = beside_a_bare_session(client, bare, "layers", batches((ROWS, 64)), SHORT_S, ROUNDS)
            assert jobs_done(pool) - before >= (ROUNDS + 1) * IN_FLIGHT
        assert 0 < found.low <= found.median <= found.high
        assert pool.stop() == 0
    finally:
        pool.kill()


def jobs_done(pool: PoolProcess) -> int:
    with pool.client() as client:
        return sum(int(slot.jobs_done) for slot in client.status().slots)


def test_eight_runs_of_the_bare_side_are_in_flight_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn is over after some more runs; until then no time passes, however late the threads begin."""
    all_there = threading.Barrier(IN_FLIGHT, timeout=FULL_S)  # broken, and the turn failed, unless all come to it
    met: list[int] = []

    def run(number: int) -> None:
        if number < IN_FLIGHT:
            all_there.wait()
        met.append(number)

    clock = SimpleNamespace(perf_counter=lambda: 0.0 if len(met) < 10 * IN_FLIGHT else SHORT_S)
    monkeypatch.setattr(gpu_models, "time", clock)
    told = Flight(run).turn(SHORT_S)
    assert told["in_flight"] == IN_FLIGHT
    assert not all_there.broken
    assert sorted(met) == list(range(len(met)))  # each number once: the inputs take turns
    assert told["runs_a_s"] > 0

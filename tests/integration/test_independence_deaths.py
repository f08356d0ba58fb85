"""Workers that die of rows which nobody asked for: made-up ones, or those of several jobs together."""

from collections.abc import Iterator

import numpy as np
import pytest

from pool import Client
from pool.wire.records import SignatureInfo
from support.pool_process import PoolProcess, pool_process, stub_config
from support.processes import eventually

TOUCHY = """
[[model]]
name = "touchy"
path = "stub:touchy"
"""
CROWD = """
[[model]]
name = "crowd"
path = "stub:crowd"
warmup = false
"""
REST = '[restart]\nbackoff_max = "100ms"\n'
DIED = "cpu:0 BACKOFF"


@pytest.fixture(scope="module")
def touchy() -> Iterator[PoolProcess]:
    with pool_process(stub_config(devices='["cpu"]', models=TOUCHY, rest=REST)) as running:
        yield running
        assert running.whole_log().count(DIED) == 2


@pytest.fixture
def crowd() -> Iterator[PoolProcess]:
    with pool_process(stub_config(devices='["cpu"]', models=CROWD, rest=REST)) as running:
        yield running


def told(client: Client, model: str) -> SignatureInfo:
    (found,) = [each for each in client.models() if each.name == model]
    return found.signatures["serving_default"]


def ask(client: Client, model: str, number: float) -> None:
    x = np.array([number], np.float32)
    np.testing.assert_array_equal(client.run(model, x, timeout=30)["y"], x)


def test_made_up_values_that_kill_are_not_tried_a_third_time(touchy: PoolProcess) -> None:
    """All of its signatures die of them, and the slot would be given up before each had killed two workers."""
    assert touchy.text().count(DIED) == 2
    with touchy.client() as client:
        (model,) = client.models()
        assert len(model.signatures) == 3
        for name, signature in model.signatures.items():
            assert "2 workers died while they tried it" in signature.rows
            assert client.run("touchy", np.array([7.0], np.float32), signature=name)["y"].tolist() == [7.0]


def test_real_jobs_prove_what_could_not_be_tried(touchy: PoolProcess) -> None:
    numbers = iter(range(1, 1_000_000))
    with touchy.client() as client:

        def is_proven() -> bool:
            for _ in range(8):
                ask(client, "touchy", float(next(numbers)))
            return bool(told(client, "touchy").batchable)

        eventually(is_proven, 60)
        assert "in batches: its rows were independent in 6" in told(client, "touchy").rows


def test_rows_that_kill_when_they_run_together_end_joining_and_nothing_else(crowd: PoolProcess) -> None:
    numbers = iter(range(1, 1_000_000))
    with crowd.client() as client:

        def is_known() -> bool:
            for _ in range(4):
                ask(client, "crowd", float(next(numbers)))
            return "2 workers died while they ran rows together" in told(client, "crowd").rows

        eventually(is_known, 60)
        eventually(lambda: crowd.text().count(DIED) == 2)
        futures = [client.submit("crowd", np.array([number], np.float32)) for number in range(200)]
        for number, future in enumerate(futures):
            assert future.result(30)["y"].tolist() == [number]
        crowd.await_log("its jobs run one by one")
    assert crowd.whole_log().count(DIED) == 2


def test_without_a_state_folder_no_rows_are_tried_and_it_says_so() -> None:
    """A worker that dies of them would be followed by one that tries them again."""
    nowhere = {"XDG_STATE_HOME": "", "HOME": "nowhere"}
    with pool_process(stub_config(devices='["cpu"]', models=CROWD, rest=REST), nowhere) as running:
        with running.client() as client:
            for number in range(40):
                ask(client, "crowd", float(number))
            told_of = told(client, "crowd")
        assert "there is no state folder" in told_of.rows
        assert not told_of.batchable
        assert DIED not in running.whole_log()

"""Clients share a model's rows, models share a device's time by weight, and nobody saves anything up."""

from collections import Counter, defaultdict

import pytest

from pool.core.policy import ModelPolicy
from simulation.driver import Driver, payloads

ROW_S = 0.01


class Shop:
    """One lane, and clients that each keep so many jobs in the pool; a batch takes as long as it has rows."""

    def __init__(self, **models: ModelPolicy) -> None:
        self.driver = Driver(tuple(models), max_jobs=100_000, default_timeout_s=1e6, models=models).serve()
        self.rows: Counter[bytes] = Counter()
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._jobs: dict[object, tuple[bytes, str, int]] = {}
        self._number = 0

    def submit(self, client: bytes, model: str = "m", rows: int = 1, depth: int = 1) -> None:
        for _ in range(depth):
            self._number += 1
            self._jobs[f"payload {self._number}"] = (client, model, rows)
            self.driver.submit(model, job=self._number, client=client, rows=rows)

    def run(self, batches: int) -> None:
        """For each job that is done, its client sends another one like it."""
        for _ in range(batches):
            (run,) = self.driver.running()
            rows = sum(part.stop - part.start for part in run.parts)
            for part in run.parts:
                self.rows[self._jobs[part.payload][0]] += part.stop - part.start
            self.seconds[run.model] += rows * ROW_S
            self.driver.now += rows * ROW_S
            for payload in payloads(run):
                if payload in self._jobs:
                    self.submit(*self._jobs[payload])
            self.driver.done(run)
            # What runs is looked for in the log, and is in its last lines.
            self.driver.log = self.driver.log[-50:]


def test_a_client_with_a_huge_backlog_gets_no_more_than_one_with_a_small_one() -> None:
    shop = Shop(m=ModelPolicy(max_batch=4))
    shop.submit(b"huge", depth=300)
    shop.submit(b"small", depth=8)
    shop.run(200)
    assert shop.rows[b"small"] == pytest.approx(shop.rows[b"huge"], rel=0.1)


def test_three_clients_get_a_third_each_whatever_the_size_of_their_jobs() -> None:
    shop = Shop(m=ModelPolicy(max_batch=8))
    for client, rows in ((b"a", 1), (b"b", 3), (b"c", 8)):
        shop.submit(client, rows=rows, depth=20)
    shop.run(300)
    third = sum(shop.rows.values()) / 3
    assert all(rows == pytest.approx(third, rel=0.1) for rows in shop.rows.values()), shop.rows


def test_a_client_that_comes_anew_does_not_catch_up() -> None:
    shop = Shop(m=ModelPolicy(max_batch=1))
    shop.submit(b"first", depth=10)
    shop.run(200)
    shop.rows.clear()
    shop.submit(b"late", depth=10)
    shop.run(40)
    assert shop.rows[b"late"] == pytest.approx(20, abs=2), "it was not here while the other one used 2 s"


def test_a_client_that_was_idle_does_not_catch_up_either() -> None:
    shop = Shop(m=ModelPolicy(max_batch=1))
    shop.driver.submit(job=10**6, client=b"idle", rows=1)
    shop.driver.done(shop.driver.running()[0])
    shop.submit(b"first", depth=10)
    shop.run(200)
    shop.rows.clear()
    shop.submit(b"idle", depth=10)
    shop.run(40)
    assert shop.rows[b"idle"] == pytest.approx(20, abs=2)


@pytest.mark.parametrize(("weight", "share"), [(1.0, 0.5), (3.0, 0.75), (0.25, 0.2)])
def test_models_share_a_device_by_weight(weight: float, share: float) -> None:
    shop = Shop(a=ModelPolicy(max_batch=8, weight=weight), b=ModelPolicy(max_batch=2))
    shop.submit(b"client", "a", depth=30)
    shop.submit(b"client", "b", depth=30)
    shop.run(400)
    assert shop.seconds["a"] / sum(shop.seconds.values()) == pytest.approx(share, abs=0.03)


def test_a_model_that_comes_anew_does_not_catch_up() -> None:
    shop = Shop(a=ModelPolicy(max_batch=1), b=ModelPolicy(max_batch=1))
    shop.submit(b"client", "a", depth=10)
    shop.run(200)
    shop.seconds.clear()
    shop.submit(b"client", "b", depth=10)
    shop.run(40)
    assert shop.seconds["b"] == pytest.approx(0.2, abs=0.03)


def test_a_lane_that_only_one_model_wants_is_not_kept_for_the_others() -> None:
    shop = Shop(a=ModelPolicy(max_batch=4, weight=0.01), b=ModelPolicy())
    shop.submit(b"client", "a", depth=10)
    shop.run(20)
    assert shop.rows[b"client"] == 1 + 19 * 4, "the first one found the lane idle"

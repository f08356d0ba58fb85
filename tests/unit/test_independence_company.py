"""How many rows, and whose, run together when a job is compared in other company."""

from collections.abc import Mapping

import numpy as np
import pytest

from pool.wire.independence import RowsCompared
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings
from unit.caches import new_cache
from workers.independence.checks import QUICK_S, Checks
from workers.independence.known import Known
from workers.independence.samples import Sample, Sampler

MOST_ROWS = 32


class Lane:
    """Of a model that doubles each row."""

    def __init__(self) -> None:
        self.ran: list[list[float]] = []
        self.told: list[RowsCompared] = []
        known = Known([ModelSettings("m", "stub:m", True, cache=new_cache())])
        self._checks = Checks(Sampler(known), self._run, self.told.append, known.marks, 0)

    def _run(self, _: Sample, feeds: Mapping[str, Array]) -> dict[str, Array]:
        self.ran.append(feeds["x"].tolist())
        return {"y": feeds["x"] * 2}

    def compare(self, *rows: float, run_s: float = 0.0, most_rows: int = MOST_ROWS) -> list[list[float]]:
        """A job of these rows, which ran for so long; the rows of each run that compares it."""
        self.ran.clear()
        x = np.array(rows)
        self._checks.served(Sample("m", "files", "s", ("y",), {"x": x}, {"y": x * 2}, False, run_s=run_s), most_rows)
        while self._checks.waits:
            self._checks.step()
        return self.ran


@pytest.mark.parametrize("most_rows", [2, 3, 8])
def test_a_job_is_always_among_the_rows_that_are_compared_and_so_are_others(most_rows: int) -> None:
    lane = Lane()
    for number in range(1, 30):
        (together,) = lane.compare(float(number), most_rows=most_rows)
        assert number in together
        assert len(together) <= most_rows
        assert number == 1 or set(together) > {number}
    assert all(each.distinct for each in lane.told[2:])


def test_a_comparison_takes_no_longer_than_the_job_did_where_that_is_long() -> None:
    lane = Lane()
    for number in range(20):
        assert len(lane.compare(float(number), run_s=10 * QUICK_S)[0]) == 2, "one row has no company"
    assert max(map(len, lane.compare(1.0, 2.0, 3.0, 4.0, run_s=10 * QUICK_S))) == 4
    assert max(map(len, lane.compare(*map(float, range(64)), run_s=10 * QUICK_S))) == MOST_ROWS


def test_it_takes_a_moment_where_a_job_takes_less() -> None:
    lane = Lane()
    for number in range(20):
        lane.compare(float(number))
    assert len(lane.compare(0.5, run_s=QUICK_S / 4)[0]) == 4
    assert len(lane.compare(0.5, run_s=QUICK_S / 1000)[0]) == 9

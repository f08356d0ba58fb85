"""What a sample of joined runs shows."""

import numpy as np
import pytest

from pool.wire.independence import RowsCompared
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings
from unit.caches import new_cache
from workers.independence.checks import Checks
from workers.independence.known import Known
from workers.independence.samples import Sample, Sampler


@pytest.mark.parametrize("seed", range(4))
def test_what_opens_a_gate_may_be_in_both_halves_of_a_joined_run(seed: int) -> None:
    """Half of the rows do, so either half of the run opens it; the answers of the others are wrong all the same."""

    def gate(x: Array) -> Array:
        return -x if (x > 100).any() else x

    told: list[RowsCompared] = []
    x = np.array([1.0, 200.0] * 8, np.float32)
    known = Known([ModelSettings("m", "stub:m", True, cache=new_cache())])
    sampler = Sampler(known)
    checks = Checks(sampler, lambda _, feeds: {"y": gate(feeds["x"])}, told.append, known.marks, seed)
    for _ in range(20):
        checks.served(Sample("m", "files", "s", ("y",), {"x": x}, {"y": gate(x)}, proven=True), 32)
        while checks.waits:
            checks.step()
    assert told
    assert "output 'y' gave" in told[0].differs

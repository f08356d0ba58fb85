"""A lane that is inside `Session.run`, for ever: where it is can be said, and it can be killed."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from pool import errors
from pool.wire.records import Feed
from support.pool_process import pool_process, stub_config

pytestmark = [pytest.mark.tensorflow, pytest.mark.faults]


@pytest.fixture(scope="module")
def spinning(models: Path) -> Path:
    """serving_default: counts up to `count`, one by one, and returns where it has come to."""

    class Spinning(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([], tf.int64, name="count")])
        def count_up(self, count: object) -> dict[str, object]:
            zero = tf.constant(0, tf.int64)
            (reached,) = tf.while_loop(lambda n: n < count, lambda n: (n + 1,), (zero,))
            return {"reached": reached}

    module = Spinning()
    folder = models / "spinning"
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.count_up})
    return folder


def test_the_stacks_of_a_worker_are_taken_while_tensorflow_runs(spinning: Path) -> None:
    model = f'[[model]]\nname = "spinning"\npath = "{spinning}"\n'
    # Longer than a machine may be held up: the other jobs have but one attempt, too.
    rest = '[health]\nhung_after = "15s"\n[queue]\nmax_attempts = 1\n'
    config = stub_config(devices='["cpu"]', models=model, rest=rest)
    with pool_process(config) as pool, pool.client() as client:
        assert client.run("spinning", 1000)["reached"] == 1000
        with pytest.raises(errors.Quarantined, match="hung_after"):
            client.run("spinning", 1 << 60, timeout=60.0)
        report = client.explain(slot=0).crash_reports[0]
        assert report.exit == "SIGKILL"
        (hung,) = [thread for thread in report.stacks.split("\n\n") if "session.py" in thread]
        assert "in run" in hung
        assert "in _serve" in hung
        assert report.note == ""
        (batch,) = report.batches
        assert batch.feeds == (Feed("", "int64", ()),)
        assert len(report.threads) > 1
        assert int(np.asarray(client.run("spinning", 5, timeout=90.0)["reached"])) == 5

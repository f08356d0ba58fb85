"""Workers that end in the middle of TensorFlow's own work: the stub's crash matrix, for the moments that matter."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from pool import Client, errors
from support.pools import pool_in, until
from tf.making import save_graph, v1
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow

CONFIG = """
[pool]
devices = ["cpu", "cpu"]
lanes = 1
[health]
hung_after = "2s"
[[model]]
name = "slow"
path = "{folder}/slow"
batching = "on"
"""


def slow() -> dict[str, Any]:
    """y = 2 x, after so many rounds as the largest value says."""
    x = v1.placeholder(tf.float32, [None, 1])
    rounds = tf.cast(tf.reduce_max(x), tf.int32)
    _, y = tf.while_loop(lambda i, _: i < rounds, lambda i, y: (i + 1, tf.identity(y)), [0, x * 2])
    return {"serving_default": ({"x": x}, {"y": y})}


LONG = 3e7  # rounds: it never ends by itself


def test_a_worker_that_ends_within_a_run_and_one_that_hangs_there(tmp_path: Path) -> None:
    save_graph(tmp_path / "slow", slow)
    with pool_in(tmp_path, CONFIG.format(folder=tmp_path)) as running, Client(running.endpoint) as client:
        long = client.submit("slow", [[LONG]])
        (slot,) = until(lambda: [s for s in client.status()["slots"] if "of slow for" in s["doing"]], "it runs")
        others = [client.submit("slow", [[float(i)]]) for i in range(20)]
        assert [each.result(20)["y"].item() for each in others] == [2.0 * i for i in range(20)], "on the other worker"
        os.kill(slot["pid"], signal.SIGSEGV)
        with pytest.raises(errors.Quarantined):  # its second worker hangs
            long.result(60)
        assert client.run("slow", [[3.0]])["y"].item() == 6

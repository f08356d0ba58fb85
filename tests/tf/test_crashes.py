"""Workers that end in the middle of TensorFlow's own work: the stub's crash matrix, for the moments that matter."""

import os
import signal
from typing import Any

import pytest

from pool import Client, errors
from support.pools import RunningPool, pool_in, until
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


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("slow")
    save_graph(folder / "slow", slow)
    with pool_in(folder, CONFIG.format(folder=folder)) as made:
        yield made


LONG = 3e7  # rounds: it never ends by itself


def busy(client: Client, model: str) -> int:
    """The worker that runs a job of the model, once it does."""
    pids = until(
        lambda: [slot["pid"] for slot in client.status()["slots"] if f"of {model} for" in slot["doing"]], "it runs"
    )
    return int(pids[0])


def test_a_worker_that_ends_within_a_run_and_one_that_hangs_there(running: RunningPool) -> None:
    with Client(running.endpoint) as client:
        long = client.submit("slow", [[LONG]])
        pid = busy(client, "slow")
        others = [client.submit("slow", [[float(i)]]) for i in range(20)]
        assert [each.result(20)["y"].item() for each in others] == [2.0 * i for i in range(20)], "on the other worker"
        os.kill(pid, signal.SIGSEGV)
        with pytest.raises(errors.Quarantined):  # its second worker hangs
            long.result(60)
        assert client.run("slow", [[3.0]])["y"].item() == 6

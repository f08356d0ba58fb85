"""Workers that say what no worker says: it costs them their life, and the pool serves on by the next one."""

from pathlib import Path

import numpy as np
import zmq

from support import liar
from support.pools import StartPool, until
from support.raw import RawClient, job

CONFIG = """
[pool]
devices = ["cpu"]
lanes = 1
[queue]
max_attempts = 100
[restart]
intensity = 100
[[model]]
name = "double"
path = "stub:double"
"""


def test_a_lie_costs_a_worker_its_life(start_pool: StartPool, tmp_path: Path) -> None:
    """Each worker tells another lie. One job outlives them all."""
    environ = liar.environ(tmp_path, "")
    lies = [tmp_path / "lies" / f"{number:02}-{lie}" for number, lie in enumerate(liar.LIES)]
    for lie in lies:
        lie.touch()
    pool = start_pool(CONFIG, wait=False, **environ)
    pool.wait_for("starting")
    client = RawClient(pool.endpoint)
    client.socket.zmq.setsockopt(zmq.RCVTIMEO, 60_000)
    client.send(job(1, "double", seconds=50, x=np.full((1, 1), 2, np.float32)))
    assert client.ends(1)[1]["y"].tolist() == [[4.0]], pool.log.read_text()
    client.close()
    assert not any(lie.exists() for lie in lies), "the premise: all were told"
    until(lambda: pool.log.read_text().count("it said what no worker says") >= len(lies), "the reasons in the log")

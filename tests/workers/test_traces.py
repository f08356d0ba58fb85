"""A worker tells, beside its work, what a traced run did on each device."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pool import Client, errors
from support.pools import RunningPool, row, until

CONFIG = """
[pool]
devices = ["cpu"]
[[model]]
name = "double"
path = "stub:double"
[[model]]
name = "bad"
path = "stub:double?log={folder}/away/log"
[[model]]
name = "gated"
path = "stub:double?gate={folder}/gate"
"""


def test_each_device_is_told_with_its_ops(client: Client) -> None:
    (device,) = client.placement("double")["devices"]
    assert device.pop("seconds") >= 0
    assert device == {"device": "/cpu:0", "ops": 1, "names": ["double"]}


def test_one_trace_runs_at_a_time_and_holds_up_nothing(client: Client, running: RunningPool) -> None:
    with pytest.raises(errors.ModelFailed, match="FileNotFoundError"):
        client.placement("bad")
    with ThreadPoolExecutor() as threads:
        traces = [threads.submit(client.placement, "gated") for _ in range(2)]
        (refused,) = until(lambda: [each for each in traces if each.done()], "the second one's refusal")
        assert "ask again" in str(refused.exception())
        assert client.run("double", row())["y"].item() == 2.0
        Path(running.folder, "gate").touch()
        traces.remove(refused)
        assert traces[0].result(30)["devices"]
    Path(running.folder, "gate").unlink()
    assert client.status()["deaths"] == []
    with pytest.raises(errors.DeadlineExceeded):
        client.placement("gated", timeout=0.5)
    assert running.stop() == 0, "a trace keeps no worker from ending with its pool"

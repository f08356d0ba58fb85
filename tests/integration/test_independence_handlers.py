"""A handler's Python may look at the rows of a job together, as a graph may. Real jobs alone find out."""

from collections.abc import Iterator

import numpy as np
import pytest

from pool import Client
from pool.wire.records import SignatureInfo
from support.pool_process import PoolProcess, pool_process
from support.processes import eventually

HANDLERS = """
class Scaled:
    inputs = outputs = {}

    def __init__(self, context):
        pass

    def preprocess(self, inputs, signature):
        return {"x": inputs["x"] * 2}

    def postprocess(self, outputs, signature):
        return outputs


class Centred(Scaled):
    def preprocess(self, inputs, signature):
        return {"x": inputs["x"] - inputs["x"].mean()}


class Ranked(Scaled):
    def postprocess(self, outputs, signature):
        return {**outputs, "same": outputs["same"].argsort().argsort().astype("float32")}
"""
ENTRY = """
[[model]]
name = "{0}"
path = "stub:rows"
handler = "these:{0}"
handler_path = "FOLDER"
max_batch = 8
"""
RIGHT = {
    "Scaled": lambda x: 2 * x,
    "Centred": lambda x: x - x.mean(),
    "Ranked": lambda x: (2 * x).argsort().argsort().astype(np.float32),
}


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolProcess]:
    folder = tmp_path_factory.mktemp("handlers")
    (folder / "these.py").write_text(HANDLERS)
    config = '[pool]\nendpoint = "@endpoint@"\ndevices = ["cpu"]\n' + "".join(map(ENTRY.format, RIGHT))
    with pool_process(config.replace("FOLDER", str(folder))) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def told(client: Client, model: str) -> SignatureInfo:
    (found,) = [each for each in client.models() if each.name == model]
    return found.signatures["view"]


def send(client: Client, model: str, numbers: np.random.Generator) -> bool:
    """Some jobs at once, each with the right answer; whether any of them ran together."""
    fed = [numbers.standard_normal(1 + number % 11).astype(np.float32) for number in range(24)]
    futures = [client.submit(model, x, signature="view", timeout=30) for x in fed]
    for x, future in zip(fed, futures, strict=True):
        np.testing.assert_allclose(future.result(30)["same"], RIGHT[model](x), rtol=1e-5, atol=1e-6)
    lines = [future.timeline for future in futures]
    return any(line.batch_rows != line.rows for line in lines if line)


@pytest.mark.parametrize("model", ["Centred", "Ranked"])
def test_python_that_looks_at_all_rows_of_a_job_is_found_out_by_real_ones(client: Client, model: str) -> None:
    numbers = np.random.default_rng(2)

    def is_known() -> bool:
        assert not send(client, model, numbers)
        return "depend on each other: output '" in told(client, model).rows

    eventually(is_known, 60)
    assert not send(client, model, numbers)


def test_python_that_does_not_is_proven_by_real_ones(client: Client) -> None:
    numbers = np.random.default_rng(3)
    assert not send(client, "Scaled", numbers)
    eventually(lambda: send(client, "Scaled", numbers) and told(client, "Scaled").batchable, 60)

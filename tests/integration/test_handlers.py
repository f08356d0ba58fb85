"""Models with Python around their graph, behind a pool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from pool.client.futures import JobFuture
from pool.wire.records import Tensor
from support.commands import run_command
from support.pool_process import PoolProcess, pool_process

HANDLER = """
import sys
import threading

class Words:
    inputs = {"double": {"text": ("string", [None])}}
    outputs = {"double": {"size": ("int64", [None]), "thread": ("string", [None])}}

    def __init__(self, context):
        self.factor = context.options["factor"]

    def preprocess(self, inputs, signature):
        if signature == "view":
            assert not inputs["x"].flags.writeable
        if signature != "double":
            return inputs
        if b"exit" in inputs["text"]:
            sys.exit(3)
        return {"x": [self.factor * int(text) for text in inputs["text"]]}

    def postprocess(self, outputs, signature):
        if signature != "double":
            return outputs
        thread = threading.current_thread().name
        return {"size": outputs["y"].astype("int64"), "thread": [thread] * len(outputs["y"])}
"""

CONFIG = """
[pool]
endpoint = "@endpoint@"
devices = ["cpu"]

[[model]]
name = "words"
path = "stub:rows?run_ms=5"
batching = true
handler = "words:Words"
handler_path = "FOLDER"
handler_options = { factor = 10 }
batch_wait = "20ms"

[[model]]
name = "large"
path = "stub:rows"
batching = true
handler = "words:Words"
handler_path = "FOLDER"
handler_options = { factor = 1 }
max_batch = 65536
"""


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PoolProcess]:
    folder = tmp_path_factory.mktemp("handlers")
    (folder / "words.py").write_text(HANDLER)
    with pool_process(CONFIG.replace("FOLDER", str(folder))) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def outcome(future: JobFuture) -> Any:
    try:
        return future.result(20)["size"].tolist()
    except errors.PoolError as error:
        return error


def test_its_callers_see_what_the_handler_takes_and_gives(client: Client) -> None:
    model, _ = client.models()
    assert model.handler == "words:Words"
    double = model.signatures["double"]
    assert double.inputs == {"text": Tensor("string", (-1,))}
    assert set(double.outputs) == {"size", "thread"}
    assert double.batchable
    found = client.run("words", ["1", "22"], signature="double")
    assert found["size"].tolist() == [20, 440]
    assert found["thread"].item(0).startswith(b"lane-")
    with pytest.raises(errors.InvalidInput, match=r"expected string \[\?\], got float64"):
        client.run("words", [1.0], signature="double")
    assert client.run("words", [3.0], signature="fail")["y"].tolist() == [3]


@pytest.mark.parametrize("way", ["submit", "submit_many"])
def test_a_job_whose_python_raises_has_its_own_error(client: Client, way: str) -> None:
    texts = [str(number) for number in range(40)]
    texts[7], texts[21] = "seven", "exit"
    jobs = [[text] for text in texts]
    if way == "submit":
        futures = [client.submit("words", job, signature="double") for job in jobs]
    else:
        futures = client.submit_many("words", jobs, signature="double")
    found = [outcome(future) for future in futures]
    assert isinstance(found[7], errors.InvalidInput)
    assert "handler words:Words, preprocess: ValueError: invalid literal for int()" in str(found[7])
    assert isinstance(found[21], errors.ModelFailed)
    assert "handler words:Words, preprocess: SystemExit: 3" in str(found[21])
    right = [[20 * number] for number in range(40)]
    assert found[:7] + found[8:21] + found[22:] == right[:7] + right[8:21] + right[22:]


def test_large_jobs_are_cut_and_scattered(client: Client) -> None:
    many = [str(number) for number in range(100)]
    right = [20 * number for number in range(100)]
    assert client.run("words", many, signature="double")["size"].tolist() == right
    scattered = client.scatter("words", {"text": many}, signature="double", reduce="concat")
    assert scattered["size"].tolist() == right


def test_large_tensors_stay_each_job_s_own(client: Client) -> None:
    """`same` is a view of what was fed, which lies in memory that the client shares with the worker."""
    arrays = [client.empty((20_000,), "float32") for _ in range(4)]
    for number, array in enumerate(arrays):
        array[:] = number
    futures = [client.submit("large", array, signature="view", outputs=["same"]) for array in arrays]
    found = [future.result(20)["same"] for future in futures]
    for array in arrays:
        array[:] = -1
    assert [set(np.unique(each)) for each in found] == [{0}, {1}, {2}, {3}]


def test_a_session_passes_the_handler_by(client: Client) -> None:
    with client.session("words") as session:
        assert session.run("double/y:0", {"double/x:0": [1.5]}).tolist() == [3.0]


def test_another_handler_comes_with_new_workers(pool: PoolProcess, client: Client) -> None:
    pool.config.write_text(pool.config.read_text().replace("factor = 10", "factor = 100"))
    done = run_command(pool, "reload", "--wait")
    assert done.returncode == 0, done.stderr
    assert '[[model]] words handler_options: {"factor": 10} → {"factor": 100}' in done.stdout
    assert client.run("words", ["1"], signature="double")["size"].tolist() == [200]


def test_a_handler_that_cannot_be_imported_makes_the_slot_fatal(tmp_path: Path) -> None:
    running = PoolProcess(CONFIG.replace("FOLDER", str(tmp_path))).start()
    try:
        assert running.wait(20) == 3
        text = running.text()
    finally:
        running.kill()
    told = "model words: handler words:Words: it cannot be imported: ModuleNotFoundError: No module named 'words'"
    assert told in text
    assert f"it was looked for in the installed packages and in {tmp_path}" in text

"""Two versions of a SavedModel, served at the same time from one worker: each answers for itself."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import errors
from support.pool_process import PoolProcess, pool_process, stub_config
from tf.held_lanes import HeldLanes
from workers.tf.library import tf

pytestmark = [pytest.mark.tensorflow, pytest.mark.replacement]


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("versions")
    for number in (1, 3):
        module = tf.Module()
        module.scale = tf.Variable(np.linspace(0.1, number, 8, dtype=np.float32))

        @tf.function(input_signature=[tf.TensorSpec([None, 8], tf.float32, name="x")])
        def scaled(x: Any, module: Any = module, number: int = number) -> dict[str, Any]:
            return {"y": x * module.scale - number}

        tf.saved_model.save(module, str(folder / str(number)), signatures={"serving_default": scaled})
    return folder


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> HeldLanes:
    return HeldLanes(tmp_path_factory.mktemp("lanes"), slots=(0, 0))


@pytest.fixture(scope="module")
def pool(versions: Path, lanes: HeldLanes) -> Iterator[PoolProcess]:
    keys = 'versions = "all"\nlabels = { stable = 1, canary = 3 }\nallowed_batch_sizes = [1, 8]\nbatching = "always"\n'
    model = f'[[model]]\nname = "m"\npath = "{versions}"\n{keys}'
    models = model + lanes.config
    with pool_process(stub_config("lanes = 2", devices='["cpu"]', models=models)) as running:
        yield running


def test_interleaved_jobs_are_answered_bit_for_bit_by_the_version_that_each_names(
    pool: PoolProcess, lanes: HeldLanes, versions: Path, in_process: Callable[..., dict[str, Any]]
) -> None:
    rng = np.random.default_rng(3)
    folders = {1: versions / "1", 3: versions / "3", "stable": versions / "1", "canary": versions / "3"}
    wanted = [rng.choice(np.array([1, 3, "stable", "canary", None], object)) for _ in range(200)]
    inputs = [rng.standard_normal((1 + number % 3, 8)).astype(np.float32) for number in range(200)]
    with pool.client() as client:
        with lanes.held(client, jobs=len(inputs)):
            jobs = [client.submit("m", {"x": x}, version=version) for x, version in zip(inputs, wanted, strict=True)]
        for job, x, version in zip(jobs, inputs, wanted, strict=True):
            expected = in_process(folders.get(version, versions / "3"), "serving_default", {"x": x})
            np.testing.assert_array_equal(job.result(60)["y"], expected["y"])
        assert max(job.timeline.batch_rows for job in jobs if job.timeline is not None) > 3, "they ran together"
        first, second = (client.run("m", {"x": inputs[0]}, version=version)["y"] for version in (1, 3))
        assert not np.array_equal(first, second)
        with pytest.raises(errors.ModelNotFound, match="version 2 is not served; served: stable = 1, canary = 3"):
            client.run("m", {"x": inputs[0]}, version=2)


def test_a_session_runs_the_graph_of_its_version(
    pool: PoolProcess, versions: Path, in_process: Callable[..., dict[str, Any]]
) -> None:
    x = np.linspace(-1, 1, 16, dtype=np.float32).reshape(2, 8)
    with pool.client() as client:
        for version, folder in (("stable", "1"), (3, "3"), (None, "3")):
            with client.session("m", version=version) as session:
                answer = session.run("StatefulPartitionedCall:0", {"serving_default_x:0": x})
            np.testing.assert_array_equal(answer, in_process(versions / folder, "serving_default", {"x": x})["y"])
        assert client.placement("m@1").model == "m@1"

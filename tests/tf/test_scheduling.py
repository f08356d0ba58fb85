"""Batched, padded, split and scattered runs through the whole pool give what single-row runs in TensorFlow give."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import workers.tf.demo
from pool import Client
from support.pool_process import PoolProcess, pool_process, stub_config
from tf.held_lanes import HeldLanes

pytestmark = pytest.mark.tensorflow

DIGITS = Path(workers.tf.demo.__file__).parent / "digits"
WIDTH = 6


class Regression(tf.Module):
    """`loss` gives no row back: the mean gradients of a linear model, as a worker of data-parallel training does."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(tf.linspace(-1.0, 1.0, WIDTH)[:, tf.newaxis])
        self.bias = tf.Variable(0.5)

    @tf.function(
        input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "x"), tf.TensorSpec([None, 1], tf.float32, "y")]
    )
    def gradients(self, x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((x @ self.weights + self.bias - y) ** 2)
        weights, bias = tape.gradient(loss, [self.weights, self.bias])
        return {"loss": loss, "weights": weights, "bias": bias}

    @tf.function(input_signature=[tf.TensorSpec([None, WIDTH], tf.float32, "x")])
    def aliases(self, x):
        return {"same": tf.identity(x), "tall": tf.reshape(x, [-1, WIDTH, 1]), "sliced": x[:, 1:3], "doubled": x * 2}


@pytest.fixture(scope="module")
def regression(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "regression"
    module = Regression()
    tf.saved_model.save(module, str(folder), {"gradients": module.gradients, "aliases": module.aliases})
    return folder


@pytest.fixture(scope="module")
def lanes(tmp_path_factory: pytest.TempPathFactory) -> HeldLanes:
    return HeldLanes(tmp_path_factory.mktemp("lanes"), slots=(0, 1))


@pytest.fixture(scope="module")
def pool(regression: Path, lanes: HeldLanes) -> Iterator[PoolProcess]:
    models = f"""
[[model]]
name = "digits"
path = "{DIGITS}"
batching = "always"
devices = "all"
max_batch = 16
allowed_batch_sizes = [4, 16]
[[model]]
name = "regression"
path = "{regression}"
batching = "always"
devices = "all"
max_batch = 8
{lanes.config}
"""
    with pool_process(stub_config(extra_pool="lanes = 1", models=models)) as running:
        yield running


@pytest.fixture
def client(pool: PoolProcess) -> Iterator[Client]:
    with pool.client() as client:
        yield client


def rows(count: int, width: int, seed: int = 3) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def test_batched_padded_and_split_runs_equal_single_rows(
    client: Client, lanes: HeldLanes, in_process: Callable[..., dict[str, np.ndarray]]
) -> None:
    pixels = abs(rows(50, 64))
    expected = [in_process(DIGITS, "serving_default", {"pixels": row[np.newaxis]}) for row in pixels]

    with lanes.held(client, jobs=len(pixels) + 1):
        futures = [client.submit("digits", row[np.newaxis]) for row in pixels]
        split = client.submit("digits", pixels)
    for future, one in zip(futures, expected, strict=True):
        np.testing.assert_allclose(future.result()["probabilities"], one["probabilities"], rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(future.result()["label"], one["label"])
    assert max(future.timeline.batch_rows for future in futures) == 16
    joined = np.concatenate([one["probabilities"] for one in expected])
    np.testing.assert_allclose(split.result()["probabilities"], joined, rtol=1e-5, atol=1e-7)


def test_outputs_that_alias_their_feed_stay_each_client_s_own(
    pool: PoolProcess, client: Client, lanes: HeldLanes
) -> None:
    mine, others = rows(40, WIDTH, 1), rows(40, WIDTH, 2)
    answers: dict[str, list[dict[str, np.ndarray]]] = {}
    together = []

    def submit(name: str, values: np.ndarray) -> None:
        with pool.client() as own:
            futures = [own.submit("regression", row[np.newaxis], signature="aliases") for row in values]
            answers[name] = [future.result() for future in futures]
            together.append(max(future.timeline.batch_rows for future in futures))

    threads = [threading.Thread(target=submit, args=pair) for pair in (("mine", mine), ("others", others))]
    with lanes.held(client, jobs=len(mine) + len(others)):
        for thread in threads:
            thread.start()
    for thread in threads:
        thread.join(60)
    assert max(together) == 8
    for name, values in (("mine", mine), ("others", others)):
        for row, answer in zip(values, answers[name], strict=True):
            np.testing.assert_array_equal(answer["same"], row[np.newaxis])
            np.testing.assert_array_equal(answer["tall"], row.reshape(1, WIDTH, 1))
            np.testing.assert_array_equal(answer["sliced"], row[np.newaxis, 1:3])
            np.testing.assert_array_equal(answer["doubled"], 2 * row[np.newaxis])


@pytest.mark.parametrize("count", [20, 33])
def test_scattered_gradients_average_to_those_of_the_whole(client: Client, regression: Path, count: int) -> None:
    x = rows(count, WIDTH)
    y = x.sum(axis=1, keepdims=True)
    whole = client.run("regression", {"x": x, "y": y}, signature="gradients")
    reloaded = tf.saved_model.load(str(regression)).signatures["gradients"](x=tf.constant(x), y=tf.constant(y))
    pieces = client.scatter("regression", {"x": x, "y": y}, signature="gradients", reduce="mean")
    for name, value in reloaded.items():
        np.testing.assert_allclose(whole[name], value.numpy(), rtol=1e-5)
        np.testing.assert_allclose(pieces[name], value.numpy(), rtol=1e-4)


def test_scattered_rows_equal_the_whole(client: Client) -> None:
    x = rows(21, WIDTH)
    got = client.scatter("regression", {"x": x}, signature="aliases", reduce="concat")
    np.testing.assert_array_equal(got["doubled"], 2 * x)
    np.testing.assert_array_equal(got["same"], x)


def test_the_same_on_every_replica(client: Client) -> None:
    x = rows(3, WIDTH)
    everywhere = client.broadcast("regression", {"x": x}, signature="aliases")
    assert sorted(everywhere) == [0, 1]
    for answer in everywhere.values():
        np.testing.assert_array_equal(answer["same"], x)

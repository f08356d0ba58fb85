"""An answer is what the model alone would have given, whoever asks beside it and however its worker ends."""

import os
import random
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from support.pools import pool_in, until
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow

CONFIG = 'pool = { devices = ["cpu", "cpu"], lanes = 1 }\nhealth.hung_after = "2s"\n'
LONG = 3e7  # rounds: it never ends by itself
random.seed(5)
TABLE = np.random.default_rng(5).normal(size=(50, 4)).astype(np.float32)
WEIGHTS = np.random.default_rng(6).normal(size=(3, 4)).astype(np.float32)


def examples(ids: list[int]) -> bytes:
    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=ids))
    return tf.train.Example(features=tf.train.Features(feature={"ids": feature})).SerializeToString()


class Mean(tf.Module):
    """A feature of any length, padded to the longest of the batch before a mean."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "examples")])
    def __call__(self, serialized: Any) -> Any:
        ids = tf.io.parse_example(serialized, {"ids": tf.io.VarLenFeature(tf.int64)})["ids"]
        return {"y": tf.reduce_mean(tf.nn.embedding_lookup(tf.constant(TABLE), tf.sparse.to_dense(ids)), 1)}


class Dense(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = tf.Variable(WEIGHTS)

    @tf.function(input_signature=[tf.TensorSpec([None, 3], tf.float32, "x")])
    def __call__(self, x: Any) -> Any:
        return {"y": tf.nn.softmax(tf.nn.relu(x @ self.weights)), "mean": x - tf.reduce_mean(x, 0)}


class Slow(tf.Module):
    """After so many rounds as the largest value says."""

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.float32, "x")])
    def __call__(self, x: Any) -> Any:
        y = x * 2
        for _ in tf.range(tf.cast(tf.reduce_max(x), tf.int32)):
            y = tf.identity(y)
        return {"y": y}


MODELS = {"mean": Mean, "dense": Dense, "slow": Slow}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("models")
    config = CONFIG
    for name, module in MODELS.items():
        made = module()
        tf.saved_model.save(made, str(folder / name), signatures=made.__call__)
        config += f'[[model]]\nname = "{name}"\npath = "{folder / name}"\n'
    with pool_in(folder, config) as running, Client(running.endpoint) as made:
        yield made


def ask(client: Client, model: str, inputs: list[Any], **options: Any) -> list[Any]:
    """From four threads, so that jobs wait beside each other."""
    parts = [inputs[at::4] for at in range(4)]

    def many(part: list[Any]) -> list[Any]:
        return [future.result(60) for future in client.submit_many(model, part, **options)]

    with ThreadPoolExecutor(4) as threads:
        answers = [*threads.map(many, parts)]
    return [answers[at % 4][at // 4] for at in range(len(inputs))]


def test_a_feature_of_any_length(client: Client) -> None:
    lengths = [3] * 4000 + [random.randint(1, 8) for _ in range(1000)]
    ids = [[random.randrange(50) for _ in range(length)] for length in lengths]
    found = ask(client, "mean", [[examples(each)] for each in ids])
    for each, result in zip(ids, found, strict=True):
        np.testing.assert_allclose(result["y"], TABLE[each].mean(0)[None], rtol=1e-5, atol=1e-6)
    assert {result.timeline.together for result in found} == {1}


def test_proven_rows_share_runs_and_large_inputs_are_cut(client: Client) -> None:
    rows = [np.random.default_rng(at).normal(size=(1, 3)).astype(np.float32) for at in range(2000)]
    found = ask(client, "dense", rows, outputs=["y"])
    assert max(result.timeline.together for result in found) > 1, "premise: jobs were joined"
    every = np.concatenate(rows)
    expected = tf.nn.softmax(tf.nn.relu(every @ WEIGHTS)).numpy()
    np.testing.assert_allclose(np.concatenate([result["y"] for result in found]), expected, rtol=1e-5)
    np.testing.assert_allclose(client.run("dense", every, outputs=["y"])["y"], expected, rtol=1e-5)
    mapped = [result["y"] for result in client.map("dense", {"x": every}, outputs="y")]
    np.testing.assert_allclose(np.concatenate(mapped), expected, rtol=1e-5)


def test_an_output_that_mixes_rows_keeps_its_jobs_apart(client: Client) -> None:
    rows = [np.float32([[at, 1, 2]]) for at in range(500)]
    found = ask(client, "dense", rows)
    assert {result.timeline.together for result in found} == {1}
    assert all((result["mean"] == 0).all() for result in found), "a row less its own mean"
    verdicts = client.model("dense")["signatures"]["serving_default"]["verdicts"]
    assert verdicts["y"] == ""
    assert "Mean" in verdicts["mean"]
    with pytest.raises(errors.InvalidInput, match="float32"):
        client.run("dense", [["text"]])


def test_a_worker_that_ends_within_a_run_and_one_that_hangs_there(client: Client) -> None:
    long = client.submit("slow", [[LONG]])
    (slot,) = until(lambda: [s for s in client.status()["slots"] if "of slow for" in s["doing"]], "it runs")
    others = [client.submit("slow", [[float(i)]]) for i in range(20)]
    assert [each.result(20)["y"].item() for each in others] == [2.0 * i for i in range(20)], "on the other worker"
    os.kill(slot["pid"], signal.SIGSEGV)
    with pytest.raises(errors.Quarantined):  # its second worker hangs
        long.result(60)
    assert client.run("slow", [[3.0]])["y"].item() == 6

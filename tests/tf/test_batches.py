"""Runs that are joined, padded and cut give each part what a run of its own would have given it."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import workers.tf.demo
from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.packing import unpack_answer
from pool.wire.worker_messages import RowsChanged, Run, Spoiled
from support.encoded import encode_tensor
from support.outcomes import PartDone, outcomes_of
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.shared_memory import SharedMemory

pytestmark = pytest.mark.tensorflow

DEMO = Path(workers.tf.demo.__file__).parent


def floats(*shape, seed=5):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def strings(*values):
    array = np.empty(len(values), object)
    array[:] = values
    return array


@pytest.fixture
def batch(load):
    """Runs parts, which are feeds by name, as one batch; gives the answers, or the other outcomes."""
    runners = {}

    def run(folder, signature, *parts, pad_to=0, by_rows=True, outputs=None):
        if folder not in runners:
            runners[folder] = Runner({"m": load(folder)}, SharedMemory())
        encoded = [[encode_tensor(name, array) for name, array in part.items()] for part in parts]
        rows = tuple(len(next(iter(part.values()))) for part in parts)
        headers = [
            TensorHeader(header.name, header.dtype, (ROWS, *header.shape[1:]), False) for header, _ in encoded[0]
        ]
        frames = [pack(Table(tuple(headers))), *(bytes(buffer) for part in encoded for _, buffer in part)]
        finished = runners[folder].run(
            Run(1, "m", signature, outputs, rows, max(pad_to, sum(rows)), by_rows), frames, BatchMemory()
        )
        payload = iter(finished.payload)
        return [
            [next(payload) for _ in range(outcome.frames)] if isinstance(outcome, PartDone) else outcome
            for outcome in outcomes_of(finished)
        ]

    return run


def alone(batch, folder, signature, part):
    (frames,) = batch(folder, signature, part, by_rows=False)
    return unpack_answer(frames)


@pytest.fixture(scope="module")
def aliasing(models):
    """Outputs that are, or are views of, what was fed; one that is a variable's own value; one without rows."""

    class Aliasing(tf.Module):
        def __init__(self):
            super().__init__()
            self.scale = tf.Variable(2.0)

        @tf.function(input_signature=[tf.TensorSpec([None, 4096], name="x")])
        def views(self, x):
            return {
                "identity": tf.identity(x),
                "reshape": tf.reshape(x, [-1, 64, 64]),
                "expanded": tf.expand_dims(x, 1),
                "slice": tf.slice(x, [0, 0], [-1, 4096]),
                "scaled": x * self.scale,
            }

        @tf.function(input_signature=[tf.TensorSpec([None, 4096], name="x")])
        def rest(self, x):
            return {"rest": x[1:]}

        @tf.function(input_signature=[tf.TensorSpec([None], tf.int32, name="index")])
        def pick(self, index):
            return {"picked": tf.gather(tf.constant([1.0, 2.0]), index)}

        @tf.function(
            input_signature=[tf.TensorSpec([None, 32], name="a"), tf.TensorSpec([None, 32], tf.bfloat16, name="b")]
        )
        def matmul(self, a, b):
            weights = tf.reshape(tf.range(32.0 * 8), [32, 8]) / 256
            return {"product": a @ weights, "half": b * 2, "sum": tf.reduce_sum(a, 1)}

    module = Aliasing()
    folder = models / "aliasing"
    names = ("views", "rest", "pick", "matmul")
    tf.saved_model.save(module, str(folder), signatures={name: getattr(module, name) for name in names})
    return folder


PADDINGS = pytest.mark.parametrize("pad_to", [0, 8, 13])


@PADDINGS
def test_the_demo_gives_each_its_own_prediction(batch, pad_to):
    samples = json.loads((DEMO / "samples.json").read_text())
    pixels = np.array([sample["pixels"] for sample in samples], np.float32)
    cuts = [slice(0, 1), slice(1, 4), slice(4, 5), slice(5, 6)]
    answers = batch(DEMO / "digits", None, *({"pixels": pixels[cut]} for cut in cuts), pad_to=pad_to)
    for cut, frames in zip(cuts, answers, strict=True):
        answer = unpack_answer(frames)
        assert answer["label"].tolist() == [sample["label"] for sample in samples[cut]]
        expected = [alone(batch, DEMO / "digits", None, {"pixels": row[None]}) for row in pixels[cut]]
        probabilities = np.concatenate([each["probabilities"] for each in expected])
        np.testing.assert_allclose(answer["probabilities"], probabilities, rtol=1e-5, atol=1e-6)


@PADDINGS
def test_matmul_bfloat16_and_sums(batch, aliasing, pad_to):
    parts = [
        {"a": floats(rows, 32, seed=rows), "b": floats(rows, 32, seed=-rows % 97).astype("bfloat16")}
        for rows in (1, 2, 4)
    ]
    for part, frames in zip(parts, batch(aliasing, "matmul", *parts, pad_to=pad_to), strict=True):
        answer, expected = unpack_answer(frames), alone(batch, aliasing, "matmul", part)
        assert answer["half"].tobytes() == expected["half"].tobytes() == (part["b"] * 2).astype("bfloat16").tobytes()
        np.testing.assert_allclose(answer["product"], expected["product"], rtol=1e-5)
        np.testing.assert_allclose(answer["sum"], expected["sum"], rtol=1e-5, atol=1e-6)


@PADDINGS
def test_strings_of_any_bytes(batch, two_signatures, pad_to):
    parts = [{"text": strings(b"a\0", b"")}, {"text": strings(b"\xff" * 40_000)}, {"text": strings(b"", b"x")}]
    outputs = ("same", "length")
    for part, frames in zip(
        parts, batch(two_signatures, "strings", *parts, pad_to=pad_to, outputs=outputs), strict=True
    ):
        answer = unpack_answer(frames)
        assert answer["same"].tolist() == part["text"].tolist()
        assert answer["length"].tolist() == [len(text) for text in part["text"]]


def test_outputs_that_alias_the_feed_are_each_ones_own_and_stay(batch, aliasing):
    """The first batch's frames are views, not yet sent, while the second batch runs."""
    ones = [{"x": np.full((rows, 4096), mark, np.float32)} for rows, mark in ((2, 1), (3, 2))]
    others = [{"x": np.full((rows, 4096), mark, np.float32)} for rows, mark in ((3, 7), (2, 8))]
    first = batch(aliasing, "views", *ones, pad_to=8)
    second = batch(aliasing, "views", *others, pad_to=8)
    for parts, answers in ((ones, first), (others, second)):
        for part, frames in zip(parts, answers, strict=True):
            answer = unpack_answer(frames)
            x = part["x"]
            np.testing.assert_array_equal(answer["identity"], x)
            np.testing.assert_array_equal(answer["slice"], x)
            np.testing.assert_array_equal(answer["reshape"], x.reshape(-1, 64, 64))
            np.testing.assert_array_equal(answer["expanded"], x[:, None])
            np.testing.assert_array_equal(answer["scaled"], x * 2)


def test_tensorflow_takes_a_batch_as_it_is(load, aliasing):
    """Else the joining copies a second time; and if this holds, the test above is about true aliases."""
    fed = []
    model = load(aliasing)

    class Watched:
        info = model.info

        def run(self, signature, feeds, outputs):
            fetched = model.run(signature, feeds, outputs)
            fed.append(np.shares_memory(feeds["x"], fetched["identity"]))
            return fetched

    x = np.ones((2, 4096), np.float32)
    header = TensorHeader("x", "float32", (ROWS, 4096), False)
    Runner({"m": Watched()}, SharedMemory()).run(
        Run(1, "m", "views", None, (2, 2), 4, True), [pack(Table((header,))), x.tobytes(), x.tobytes()], BatchMemory()
    )
    assert fed == [True]


def test_a_fetch_with_other_rows_is_nobodys(batch, aliasing):
    parts = [{"x": floats(2, 4096)}, {"x": floats(1, 4096)}]
    text = "model m, signature rest: output 'rest' came back with 2 rows where 3 were fed"
    assert batch(aliasing, "rest", *parts) == [RowsChanged(text)] * 2
    np.testing.assert_array_equal(alone(batch, aliasing, "rest", parts[0])["rest"], parts[0]["x"][1:])


def test_one_bad_row_spoils_the_run_and_says_where(batch, aliasing):
    good, bad = ({"index": np.array([value], np.int32)} for value in (1, 7))
    outcomes = batch(aliasing, "pick", good, bad, good)
    assert [type(outcome) for outcome in outcomes] == [Spoiled] * 3
    assert {outcome.fault for outcome in outcomes} == {Fault.MODEL_FAILED}
    assert "indices[1] = 7 is not in [0, 2)" in outcomes[0].text
    assert [unpack_answer(frames)["picked"].tolist() for frames in batch(aliasing, "pick", good, good)] == [[2], [2]]

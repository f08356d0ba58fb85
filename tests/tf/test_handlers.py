"""Text in, label out: a handler around a model of TensorFlow, with default settings."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client
from support.pools import pool_in
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow

HANDLER = """
import tensorflow as tf

class Labels:
    inputs = {"text": ("string", [-1])}
    outputs = {"label": ("string", [-1])}
    rows_independent = True

    def __init__(self, labels):
        self.labels = labels

    def preprocess(self, inputs):
        return {"codes": tf.strings.unicode_decode(inputs["text"], "UTF-8").numpy()}

    def postprocess(self, outputs, inputs):
        return {"label": [self.labels[int(outputs["sum"][0]) % 3]]}
"""


class Sum(tf.Module):
    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32, "codes")])
    def __call__(self, codes: Any) -> Any:
        return {"sum": tf.reduce_sum(codes, 1)}


def test_text_in_and_label_out(tmp_path: Path) -> None:
    tf.saved_model.save(made := Sum(), str(tmp_path / "model"), signatures=made.__call__)
    (tmp_path / "labels.py").write_text(HANDLER)
    config = '[pool]\ndevices = ["cpu"]\nlanes = 1\n[[model]]\nname = "m"\npath = "model"\nhandler_path = "."\n'
    config += 'handler = "labels:Labels"\nhandler_options = { labels = ["a", "b", "c"] }\n'
    texts = ["".join(map(chr, each)) for each in np.random.default_rng(3).integers(32, 900, (600, 5))]
    mixed = [text[: 1 + at % 5] for at, text in enumerate(texts)]
    with pool_in(tmp_path, config) as running, Client(running.endpoint) as client:
        for each in (texts, mixed):  # arrays of one shape, and of several
            found = [future.result(60) for future in client.submit_many("m", [[text] for text in each])]
            assert [result["label"].item() for result in found] == [b"abc"[sum(map(ord, x)) % 3 :][:1] for x in each]
            assert (max(result.timeline.together for result in found) > 1) == (each is texts)
        assert client.session("m").run("serving_default_codes:0", {"serving_default_codes:0": [[7]]}).item() == 7

"""Text in, label out: a handler around a model of TensorFlow, with default settings."""

from pathlib import Path

import numpy as np
import pytest

from pool import Client
from support.pools import pool_in
from tf.making import save_graph, tf, v1

pytestmark = pytest.mark.tensorflow

HANDLER = """
import tensorflow as tf

class Labels:
    inputs, outputs = {"text": ("string", [-1])}, {"label": ("string", [-1])}
    rows_independent = True
    def __init__(self, labels):
        self.labels = labels
    def preprocess(self, inputs):
        return {"codes": tf.strings.unicode_decode(inputs["text"], "UTF-8").numpy()}
    def postprocess(self, outputs, inputs):
        return {"label": [self.labels[int(outputs["sum"][0]) % 3]]}
"""


def test_text_in_and_label_out(tmp_path: Path) -> None:
    def build():
        codes = v1.placeholder(tf.int32, [None, None], name="codes")
        return {"serving_default": ({"codes": codes}, {"sum": tf.reduce_sum(codes, 1)})}

    save_graph(tmp_path / "model", build)
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
        assert client.session("m").run("codes:0", {"codes:0": [[7]]}).item() == 7

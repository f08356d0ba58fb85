"""Real models that change under a pool: a vocabulary that is completed later, a version that is still being copied."""

import shutil
from pathlib import Path

import pytest
import tensorflow as tf

from pool import Client, errors
from support.pools import StartPool, until

v1 = tf.compat.v1
pytestmark = pytest.mark.tensorflow
WORDS = ["red", "green", "blue", "white"]


def save_words(folder: Path, vocabulary: Path, scale: float) -> None:
    """`number` is the word's place in the vocabulary, times a variable."""
    with tf.Graph().as_default(), v1.Session() as session:
        word = v1.placeholder(tf.string, [None])
        filling = tf.lookup.TextFileInitializer(
            str(vocabulary),
            tf.string,
            tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64,
            tf.lookup.TextFileIndex.LINE_NUMBER,
        )
        table = tf.lookup.StaticHashTable(filling, -1)
        times = v1.get_variable("times", initializer=scale)
        number = tf.cast(table.lookup(word), tf.float32) * times
        session.run([v1.global_variables_initializer(), v1.tables_initializer()])
        v1.saved_model.simple_save(
            session, str(folder), {"word": word}, {"number": number}, legacy_init_op=v1.tables_initializer()
        )


def test_answers_follow_the_files(start_pool: StartPool, tmp_path: Path) -> None:
    vocabulary, versions = tmp_path / "vocab.txt", tmp_path / "words"
    vocabulary.write_text("\n".join(WORDS))
    save_words(tmp_path / "one", vocabulary, 1.0)
    save_words(tmp_path / "two", vocabulary, 10.0)
    shutil.copytree(tmp_path / "one", versions / "1")
    asset = versions / "1" / "assets" / "vocab.txt"
    asset.write_text("\n".join(WORDS[:2]))  # the copy has come so far
    pool = start_pool(
        f'[pool]\ndevices = ["cpu", "cpu"]\nwatch = "200ms"\n[[model]]\nname = "words"\npath = "{versions}"\n'
    )
    with Client(pool.endpoint) as client:

        def numbers() -> list[float]:
            return client.run("words", {"word": [word.encode() for word in WORDS]})["number"].tolist()

        assert numbers() == [0.0, 1.0, -1.0, -1.0]
        asset.write_text("\n".join(WORDS))
        until(lambda: numbers() == [0.0, 1.0, 2.0, 3.0], "answers from the whole file")
        slots = until(
            lambda: len(found := {str(slot["versions"]) for slot in client.status()["slots"]}) == 1 and found,
            "both slots",
        )
        assert "1+" in str(slots)
        # A version whose variables are still being copied is not served, and does not disturb the one that is.
        shutil.copytree(tmp_path / "two", versions / "part")
        data = versions / "part" / "variables" / "variables.data-00000-of-00001"
        data.rename(tmp_path / "data")
        (versions / "part").rename(versions / "2")
        until(lambda: (versions / "2").exists(), "it")
        assert numbers() == [0.0, 1.0, 2.0, 3.0]
        (tmp_path / "data").rename(versions / "2" / "variables" / data.name)
        until(lambda: numbers() == [0.0, 10.0, 20.0, 30.0], "version 2")
        record = client.placement("words")
        assert [each["device"] for each in record["devices"]] == ["/cpu:0"]
        assert record["devices"][0]["ops"] > 2
        with pytest.raises(errors.ModelFailed, match=r"unknown kind.*what was served before stays"):
            client.load("words", str(vocabulary))
        assert numbers() == [0.0, 10.0, 20.0, 30.0]
        client.load("words", str(tmp_path / "one"))
        assert numbers() == [0.0, 1.0, 2.0, 3.0]

"""Real models that change under a pool: a vocabulary that is completed later, a version that is still being copied."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from pool import Client, errors
from support.pools import StartPool, until
from tf.making import line_of, save_graph, v1
from workers.tf.library import tf

pytestmark = pytest.mark.tensorflow
WORDS = ["red", "green", "blue", "white"]


def save_words(folder: Path, vocabulary: Path, scale: float) -> None:
    """`number` is the word's place in the vocabulary, times a variable."""

    def build() -> dict[str, Any]:
        word, times = v1.placeholder(tf.string, [None]), v1.get_variable("times", initializer=scale)
        return {"serving_default": ({"word": word}, {"number": tf.cast(line_of(word, vocabulary), tf.float32) * times})}

    save_graph(folder, build)


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

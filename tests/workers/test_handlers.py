"""Python around stub models, through a pool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from support.pools import RunningPool, StartPool, pool_in, row, until

HANDLERS = '''
import asyncio, sys
from threading import Thread

class Number:
    """Texts of numbers, which the model doubles."""
    inputs = {"text": ("string", [-1])}
    outputs = {"answer": ("string", [-1])}
    rows_independent = True

    def preprocess(self, inputs):
        (text,) = inputs["text"]
        if text == b"exit":
            sys.exit(3)
        if text == b"cancel":
            raise asyncio.CancelledError
        return None if text == b"bug" else {"x": [[float(text)]]}

    def postprocess(self, outputs, inputs):
        if outputs["y"].item() == 26:
            raise ZeroDivisionError("thirteen")
        return {"answer": [f"{inputs['text'][0].decode()} -> {outputs['y'].item():g}"]}

class Batch(Number):
    def preprocess_batch(self, inputs):
        return {"x": [[float(text)] for text in inputs["text"]]}

    def postprocess_batch(self, outputs, inputs):
        return {"answer": [f"{len(outputs['y'])} rows"] * len(inputs["text"])}

class Gives:
    rows_independent = True
    values = [[1.0]], [1.0], [["a"]], [[1j]], [[1, 2]], [[1.0], [2.0]], [[object()]], [[1e999]], [[7]]

    def postprocess(self, outputs, inputs):
        number = int(inputs["x"].item())
        if number < 0:
            {-30: inputs["x"], -20: outputs["y"]}[number][...] = 0
        return {"y": self.values[number]} if number else {"z": [[1.0]]}

class Pairs:
    inputs = {"a": ("float32", [-1]), "b": ("float32", [-1])}
    rows_independent = True
    def preprocess(self, inputs): return {"x": [[inputs["a"][0] + inputs["b"][0]]]}

class Whole(Batch): rows_independent = False
class Counts(Number): stateful = True
class Elsewhere(Number): signature = "predict"
class NoSpecs(Number): inputs = {"text": ("text", [-1])}
class NoMethod: outputs, preprocess = {"y": ("float32", [-1, 1])}, lambda self, inputs: inputs
class Exits(Number):
    def __init__(self): sys.exit("not\\ntoday")
class Prints(Gives): __init__ = lambda _: Thread(target=lambda: [print("x\\n" * 30000) for _ in iter(int, 1)]).start()
'''
POOL = '[pool]\ndevices = ["cpu"]\nlanes = 1\n[[model]]\nname = "good"\npath = "stub:double"\n'
MODEL = '[[model]]\nname = "{}"\npath = "{}"\nhandler = "{}"\nhandler_path = "code"\n'


def code(folder: Path, name: str = "code") -> None:
    (folder / name).mkdir()
    (folder / name / "mine.py").write_text(HANDLERS)


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPool]:
    code(folder := tmp_path_factory.mktemp("pool"))
    proven = f"stub:double?proven=1&gate={folder}/gate"
    models = ("number", "batch", "whole", "gives", "counts", "pairs")
    config = POOL + "".join(MODEL.format(name, proven, f"mine:{name.title()}") for name in models)
    config += "".join(MODEL.format(name, f"stub:{name}", "mine:Number") for name in ("double", "shrink"))
    with pool_in(folder, config) as running:
        yield running


@pytest.fixture
def client(pool: RunningPool) -> Iterator[Client]:
    (pool.folder / "gate").touch()
    with Client(pool.endpoint) as made:
        yield made


def together(pool: RunningPool, client: Client, model: str, texts: list[str]) -> list[Any]:
    """What becomes of jobs of one row each, which wait beside each other."""
    (pool.folder / "gate").unlink()
    first = client.submit(model, ["0"])
    futures = client.submit_many(model, [[text] for text in texts])
    until(lambda: client.status()["queue"]["jobs"] == len(texts) + 1, "the jobs are in the pool")
    (pool.folder / "gate").touch()
    first.result(30)
    return [future.exception(30) or future.result(30) for future in futures]


def test_joined_jobs_have_their_own_answers_and_errors(pool: RunningPool, client: Client) -> None:
    expected = {
        "x": (errors.InvalidInput, "preprocess: ValueError: could not convert string to float"),
        "bug": (errors.ModelFailed, "preprocess: TypeError: it returned None; right is a dict with x"),
        "exit": (errors.ModelFailed, "preprocess: SystemExit: 3"),
        "cancel": (errors.ModelFailed, "preprocess: CancelledError: "),
        "13": (errors.ModelFailed, "postprocess: ZeroDivisionError: thirteen"),
    }
    for texts in ([*map(str, range(1, 13))], ["1", "x", "2", "bug", "3", "exit", "4", "13", "5", "cancel"]):
        found = together(pool, client, "number", texts)
        assert "x" in texts or max(each.timeline.together for each in found) > 1, "premise: jobs are joined"
        for text, each in zip(texts, found, strict=True):
            if text in expected:
                assert type(each) is expected[text][0]
                assert str(each).startswith(f"handler mine:Number, {expected[text][1]}")
            else:
                assert each["answer"].tolist() == [f"{text} -> {2 * int(text)}".encode()]
    assert client.status()["deaths"] == []


def test_batch_methods_see_a_run_and_without_the_class_s_word_a_job(pool: RunningPool, client: Client) -> None:
    for model, is_joined in (("batch", True), ("whole", False)):
        found = together(pool, client, model, ["1"] * 9)
        assert [each["answer"].tolist() for each in found] == [[b"%d rows" % each.timeline.together] for each in found]
        assert (max(each.timeline.together for each in found) > 1) == is_joined
        assert client.run(model, ["1", "2", "3"])["answer"].tolist() == [b"3 rows"] * 3
    why = {"whole": "its handler does not say rows_independent = True", "counts": "it is stateful"}
    for model in why:
        assert client.model(model)["signatures"]["serving_default"]["verdicts"] == {"answer": why[model]}


def test_rows_of_one_job_are_handled_one_by_one_whether_or_not_its_model_is_proven(client: Client) -> None:
    verdicts = [client.model(name)["signatures"]["serving_default"]["verdicts"] for name in ("double", "number")]
    assert verdicts == [{"answer": 'a stub, and batching = "auto"'}, {"answer": ""}]
    texts = [str(number) for number in range(20, 60)]
    expected = [f"{text} -> {2 * int(text)}".encode() for text in texts]
    for model in ("double", "number"):  # the second is cut into blocks
        assert client.run(model, texts)["answer"].tolist() == expected
        assert [each["answer"].item() for each in client.map(model, [[text] for text in texts])] == expected
    with pytest.raises(errors.ModelFailed, match="the model's outputs have other rows than its inputs"):
        client.run("shrink", ["1", "2"])


def test_callers_are_held_to_what_the_handler_takes(client: Client) -> None:
    described = client.model("number")["signatures"]["serving_default"]
    assert (described["inputs"], described["outputs"]) == ({"text": ["string", [-1]]}, {"answer": ["string", [-1]]})
    for wrong in (row(), {"text": [1.0]}, {"text": [["a"]]}):
        with pytest.raises(errors.InvalidInput):
            client.run("number", wrong)


def test_no_row_of_unequal_inputs_is_dropped(client: Client) -> None:
    assert client.run("pairs", {"a": [1, 2], "b": [10, 20]})["y"].ravel().tolist() == [22, 44]
    with pytest.raises(errors.InvalidInput, match="one length"):
        client.run("pairs", {"a": [1, 2], "b": [10]})


def test_a_handler_writes_no_input_and_returns_what_fits(client: Client) -> None:
    for number in (-30, -20, *range(7)):
        told = "ValueError: assignment destination is read-only" if number < 0 else ""
        with pytest.raises(errors.ModelFailed, match=f"handler mine:Gives, postprocess: {told}"):
            client.run("gives", row(number))
    assert [client.run("gives", row(number))["y"].item() for number in (7, 8)] == [np.inf, 7.0]


def test_a_handler_that_cannot_be_used_keeps_its_model_alone_away(start_pool: StartPool, tmp_path: Path) -> None:
    refused = {
        "mine:NoMethod": "a method is missing: inputs need preprocess, outputs postprocess; write one or both",
        "mine:Exits": "SystemExit: not today",
        "mine:NoSpecs": 'does not fit; write such as inputs = {"image": ("string", [-1])}',
        "mine:Elsewhere": "no signature 'predict'; there are: serving_default",
        "mine:Missing": "mine.py has no class Missing",
        "away:Number": "ModuleNotFoundError: No module named 'away'",
    }
    config = POOL + "".join(MODEL.format(name, "stub:double", name) for name in refused)
    code(tmp_path)
    code(tmp_path, "other")
    config += MODEL.format("other", "stub:double", "mine:Number").replace('"code"', '"other"')
    refused["other"] = f"{tmp_path}/other/mine.py is hidden by {tmp_path}/code/mine.py: give the module another name"
    with Client(start_pool(config, folder=tmp_path).endpoint) as client:
        failed = client.status()["slots"][0]["failed"]
        assert failed.keys() == refused.keys()
        for name, text in refused.items():
            assert failed[name].startswith(f"model {name}: handler {name.replace('other', 'mine:Number')}: ")
            assert text in failed[name]
            assert failed[name].isprintable()
        assert client.run("good", row())["y"].item() == 2


def test_lines_without_end_hold_up_no_job(start_pool: StartPool, tmp_path: Path) -> None:
    code(tmp_path)
    pool = start_pool(POOL + MODEL.format("prints", "stub:double", "mine:Prints"), folder=tmp_path)
    until(lambda: pool.log.stat().st_size > 1 << 16, "many lines")
    with Client(pool.endpoint) as client:
        assert [client.run("good", row(), timeout=2)["y"].item() for _ in range(20)] == [2.0] * 20

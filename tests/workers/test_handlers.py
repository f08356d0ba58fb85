"""Python around stub models, through a pool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool import Client, errors
from support.pools import RunningPool, StartPool, pool_in, row, until

HANDLERS = '''
import sys
import numpy as np

class Number:
    """Texts of numbers, each of which a model doubles."""
    inputs = {"text": ("string", [-1])}
    outputs = {"answer": ("string", [-1])}
    rows_independent = True

    def __init__(self, unit=""):
        self.unit = unit

    def preprocess(self, inputs):
        (text,) = inputs["text"]
        if text == b"exit":
            sys.exit(3)
        if text == b"bug":
            raise KeyError("a bug")
        return {"x": [[float(text)]]}

    def postprocess(self, outputs, inputs):
        if outputs["y"].item() == 26:
            raise ZeroDivisionError("thirteen")
        return {"answer": [f"{inputs['text'][0].decode()} -> {outputs['y'].item():g}{self.unit}"]}

class Batch(Number):
    def preprocess_batch(self, inputs):
        return {"x": np.array([[float(text)] for text in inputs["text"]])}

    def postprocess_batch(self, outputs, inputs):
        return {"answer": [f"{len(outputs['y'])} rows"] * len(inputs["text"])}

class Whole(Batch):
    rows_independent = False

class Words(Number):
    """The words of the text: rows of various shapes."""
    outputs = {"words": ("string", [-1, -1])}

    def preprocess(self, inputs):
        return {"x": [[len(inputs["text"][0])]]}

    def postprocess(self, outputs, inputs):
        return {"words": [inputs["text"][0].split()]}

class Writes:
    rows_independent = True

    def preprocess(self, inputs):
        inputs["x"][...] = 0
        return inputs

class Gives:
    """What the row says."""
    rows_independent = True
    values = [[1.0]], [1.0], [["a"]], [[1j]], [[1, 2]], [[1.0], [2.0]], [[object()]], [[1e999]], [[7]]

    def postprocess(self, outputs, inputs):
        number = int(inputs["x"].item())
        return {"y": np.array(self.values[number])} if number else {"z": [[1.0]]}

class Counts:
    stateful = True
    rows_independent = True
    runs = 0

    def postprocess(self, outputs, inputs):
        self.runs += 1
        return {"y": np.full_like(outputs["y"], self.runs)}

class Nothing: pass
class NeedsMore(Number):
    def __init__(self, more): pass
class Exits(Number):
    def __init__(self): sys.exit("not\\ntoday")
class NoSpecs(Number):
    inputs = {"text": ("text", [-1])}
class NoMethod:
    outputs = {"y": ("float32", [-1, 1])}
    def preprocess(self, inputs): return inputs
class Elsewhere(Number):
    signature = "predict"
'''
MODEL = """
[[model]]
name = "{0}"
path = "{1}"
handler = "mine:{2}"
handler_path = "code"
"""
POOL = '[pool]\ndevices = ["cpu"]\nlanes = 1\n'


def with_code(folder: Path, **more: str) -> Path:
    (folder / "code").mkdir()
    for name, text in {"mine": HANDLERS, **more}.items():
        (folder / "code" / f"{name}.py").write_text(text)
    return folder


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningPool]:
    folder = with_code(tmp_path_factory.mktemp("pool"))
    proven = "stub:double?proven=1"
    gated = f"{proven}&gate={folder}/gate"
    models = [("number", gated, "Number"), ("words", gated, "Words"), ("batch", gated, "Batch")]
    models += [("whole", gated, "Whole"), ("unproven", "stub:double", "Number"), ("shrink", "stub:shrink", "Number")]
    models += [("writes", proven, "Writes"), ("counts", proven, "Counts"), ("gives", proven, "Gives")]
    config = POOL + "".join(MODEL.format(*each) for each in models)
    options = config.replace(
        'handler = "mine:Number"', 'handler = "mine:Number"\nhandler_options = { unit = " mm" }', 1
    )
    with pool_in(folder, options) as running:
        yield running


@pytest.fixture
def client(pool: RunningPool) -> Iterator[Client]:
    (pool.folder / "gate").touch()
    with Client(pool.endpoint) as made:
        yield made


def together(pool: RunningPool, client: Client, model: str, texts: list[str]) -> list[Any]:
    """The results or errors of jobs of one row each, which wait beside each other."""
    (pool.folder / "gate").unlink()
    first = client.submit(model, ["0"])
    futures = client.submit_many(model, [[text] for text in texts])
    until(lambda: client.status()["queue"]["jobs"] == len(texts) + 1, "the jobs are in the pool")
    (pool.folder / "gate").touch()
    first.result(30)
    return [future.exception(30) or future.result(30) for future in futures]


def test_rows_of_joined_jobs_are_handled_one_by_one(pool: RunningPool, client: Client) -> None:
    found = together(pool, client, "number", [str(number) for number in range(1, 10)])
    assert [each["answer"].tolist() for each in found] == [[f"{n} -> {2 * n} mm".encode()] for n in range(1, 10)]
    assert max(each.timeline.together for each in found) > 1, "premise: jobs were joined"


def test_a_bad_row_is_the_error_of_its_job_alone(pool: RunningPool, client: Client) -> None:
    pids = pool.workers()
    texts = ["1", "x", "2", "bug", "3", "exit", "4", "13", "5"]
    found = together(pool, client, "number", texts)
    told = "handler mine:Number, preprocess: "
    expected = {
        "x": (errors.InvalidInput, told + "ValueError: could not convert string to float"),
        "bug": (errors.ModelFailed, told + "KeyError: 'a bug'"),
        "exit": (errors.ModelFailed, told + "SystemExit: 3"),
        "13": (errors.ModelFailed, "handler mine:Number, postprocess: ZeroDivisionError: thirteen"),
    }
    for text, each in zip(texts, found, strict=True):
        if text in expected:
            assert type(each) is expected[text][0]
            assert str(each).startswith(expected[text][1])
        else:
            assert each["answer"].tolist() == [f"{text} -> {2 * int(text)} mm".encode()]
    assert pool.workers() == pids


def test_batch_methods_see_all_rows_of_a_run(pool: RunningPool, client: Client) -> None:
    found = together(pool, client, "batch", [str(number) for number in range(9)])
    assert [each["answer"].tolist() for each in found] == [[b"%d rows" % each.timeline.together] for each in found]
    assert max(each.timeline.together for each in found) > 1, "premise: jobs were joined"


def test_without_the_class_s_word_each_job_comes_whole_and_alone(pool: RunningPool, client: Client) -> None:
    found = together(pool, client, "whole", ["1"] * 5)
    assert [(each["answer"].tolist(), each.timeline.together) for each in found] == [([b"1 rows"], 1)] * 5
    assert client.run("whole", ["1", "2", "3"])["answer"].tolist() == [b"3 rows"] * 3
    verdicts = client.model("whole")["signatures"]["serving_default"]["verdicts"]
    assert verdicts == {"answer": "its handler does not say rows_independent = True"}


def test_the_model_s_part_is_for_the_model_to_prove(client: Client) -> None:
    assert "a stub" in client.model("unproven")["signatures"]["serving_default"]["verdicts"]["answer"]
    texts = [str(number) for number in range(20, 60)]
    for model, unit in (("unproven", ""), ("number", " mm")):  # the second is cut into blocks
        expected = [f"{n} -> {2 * n}{unit}".encode() for n in range(20, 60)]
        assert client.run(model, texts)["answer"].tolist() == expected
        assert [each["answer"].item() for each in client.map(model, [[text] for text in texts])] == expected
    with pytest.raises(errors.ModelFailed, match="the model's outputs have other rows than its inputs"):
        client.run("shrink", ["1", "2"])


def test_rows_whose_answers_do_not_fit_together_are_run_alone(pool: RunningPool, client: Client) -> None:
    texts = ["a", "b c", "", "d e f"]
    found = together(pool, client, "words", texts)
    assert [each["words"].tolist() for each in found] == [[text.encode().split()] for text in texts]
    with pytest.raises(errors.ModelFailed, match="its rows do not fit together: "):
        client.run("words", ["a", "b c"])


def test_callers_are_held_to_what_the_handler_takes(client: Client) -> None:
    described = client.model("number")["signatures"]["serving_default"]
    assert (described["inputs"], described["outputs"]) == ({"text": ["string", [-1]]}, {"answer": ["string", [-1]]})
    for wrong in (row(), {"text": [1.0]}, {"text": [["a"]]}):
        with pytest.raises(errors.InvalidInput):
            client.run("number", wrong)
    with pytest.raises(errors.InvalidInput, match="a stub has no graph with"):  # it is asked, not the handler
        client.session("number").run("y:0", {"x:0": 1.0})


def test_what_a_handler_does_wrong_is_told(client: Client) -> None:
    with pytest.raises(errors.InvalidInput, match="read-only"):
        client.run("writes", row())
    for number in range(7):
        with pytest.raises(errors.ModelFailed, match="handler mine:Gives, postprocess: "):
            client.run("gives", row(number))
    assert [client.run("gives", row(number))["y"].item() for number in (7, 8)] == [np.inf, 7.0]


def test_a_handler_may_have_state(client: Client) -> None:
    assert client.model("counts")["is_stateful"]
    assert [client.run("counts", row(0))["y"].item() for _ in range(3)] == [1, 2, 3]


def test_a_handler_that_cannot_be_used_keeps_its_model_alone_away(start_pool: StartPool, tmp_path: Path) -> None:
    refused = {
        "mine:Nothing": "a method is missing: inputs need preprocess, outputs postprocess; write one or both",
        "mine:NoMethod": "a method is missing",
        "mine:NeedsMore": "TypeError: NeedsMore.__init__() missing 1 required positional argument: 'more'",
        "mine:Exits": "SystemExit: not today",
        "mine:NoSpecs": 'does not fit; write such as inputs = {"image": ("string", [-1])}',
        "mine:Elsewhere": "no signature 'predict'; there are: serving_default",
        "mine:Missing": "mine.py has no class Missing",
        "away:Number": "ModuleNotFoundError: No module named 'away'",
        "broken:Number": "SyntaxError: ",
        "json:Number": "is hidden by ",
    }
    config = POOL + '[[model]]\nname = "good"\npath = "stub:double"\n'
    for name in refused:
        config += MODEL.format(name, "stub:double", "-").replace("mine:-", name)
    running = start_pool(config, folder=with_code(tmp_path, broken="def", json=HANDLERS))
    with Client(running.endpoint) as client:
        failed = client.status()["slots"][0]["failed"]
        assert failed.keys() == refused.keys()
        for name, text in refused.items():
            assert failed[name].startswith(f"model {name}: handler {name}: ")
            assert text in failed[name]
            assert "\n" not in failed[name]
        assert client.run("good", row())["y"].item() == 2

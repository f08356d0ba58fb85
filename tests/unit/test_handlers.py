"""Python around a model's graph, in this process: what it is given, what it may give, and who pays for its faults."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pool.wire.calls import ROWS, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.independence import Batching
from pool.wire.packing import unpack_answer
from pool.wire.session_runs import RUN as SESSION_RUN
from pool.wire.signatures import ModelInfo, Refused, Signature, TensorSpec
from pool.wire.tensors import Array, to_array
from pool.wire.worker_messages import Failed, HandlerSettings, ModelSettings, RowsChanged, Run, Spoiled
from support.encoded import encode_tensor
from support.outcomes import PartDone, outcomes_of
from workers.backend import CannotLoad, ProcessUnusable
from workers.handled import HandledModel
from workers.handlers import Handler, load_handler
from workers.independence.known import Known
from workers.memory import BatchMemory
from workers.runner import Runner
from workers.shared_memory import SharedMemory

FLOATS = TensorSpec("float32", (-1, -1))
NUMBERS = count()
TEXTS = {"s": {"text": ("string", [None])}}
SIZED = {"s": {"text": ("string", (-1,)), "size": ("int64", [None])}}
WIDTH: dict[str, Any] = {"s": {"width": ("int32", [])}}


class Graph:
    """y = 2x, of any width; the feeds are remembered."""

    def __init__(self, function: Callable[[Mapping[str, Array]], Any] | None = None, spec: TensorSpec = FLOATS) -> None:
        self.info = ModelInfo("m", "stub:m", {"s": Signature({"x": spec}, {"y": spec})}, False)
        self.fed: list[Array] = []
        self._function = function or (lambda feeds: {"y": feeds["x"] * 2})

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        assert (signature, tuple(outputs)) == ("s", ("y",))
        self.fed.append(feeds["x"].copy())
        return dict(self._function(feeds))


class Words:
    """A text becomes a row of its bytes; the row, halved, is the text again."""

    inputs = TEXTS
    outputs = SIZED

    def preprocess(self, inputs: Mapping[str, Array], signature: str) -> dict[str, Any]:
        assert signature == "s"
        texts = [text.decode("ascii") for text in inputs["text"]]
        if "LookupError" in texts:
            raise LookupError("not found")
        return {"x": np.array([[float(ord(letter)) for letter in text] for text in texts], np.float32)}

    def postprocess(self, outputs: Mapping[str, Array], signature: str) -> dict[str, Any]:
        assert signature == "s"
        texts = ["".join(chr(int(letter / 2)) for letter in row) for row in outputs["y"]]
        if "bad" in texts:
            raise ValueError("a bad word")
        return {"text": texts, "size": [len(text) for text in texts]}


def handled(made: object, graph: Any = None, sizes: Sequence[int] = ()) -> HandledModel:
    graph = graph or Graph()
    known = Known([ModelSettings("m", "stub:m", True, batching=Batching.ALWAYS)])
    return HandledModel(graph, Handler("words:Words", made, graph.info), sizes, known)


def run(
    model: HandledModel, *parts: Mapping[str, Any], by_rows: bool = True, outputs: tuple[str, ...] | None = None
) -> list[Any]:
    """The answers as lists, or what else came of each part."""
    headers, buffers, rows = [], [], []
    for part in parts:
        for name, value in part.items():
            array, weak = to_array(value)
            header, buffer = encode_tensor(name, array, weak)
            shape = (ROWS, *header.shape[1:]) if by_rows else header.shape
            headers.append(TensorHeader(name, header.dtype, shape, weak))
            buffers.append(bytes(buffer))
        rows.append(len(array) if by_rows else 0)
    table = pack(Table(tuple(headers[: len(parts[0])])))
    message = Run(1, "m", None, outputs, tuple(rows) if by_rows else (), sum(rows), by_rows)
    finished = Runner({"m": model}, SharedMemory()).run(message, [table, *buffers], BatchMemory())
    payload = list(finished.payload)
    found: list[Any] = []
    for outcome in outcomes_of(finished):
        if isinstance(outcome, PartDone):
            answer = unpack_answer([bytes(frame) for frame in payload[: outcome.frames]])
            found.append({name: array.tolist() for name, array in answer.items()})
            del payload[: outcome.frames]
        else:
            found.append(outcome)
    assert not payload
    return found


def text(*texts: str) -> dict[str, list[str]]:
    return {"text": list(texts)}


def answer(*texts: bytes) -> dict[str, list[Any]]:
    return {"text": list(texts), "size": [len(each) for each in texts]}


def test_parts_are_joined_by_the_shapes_of_what_they_become() -> None:
    model = handled(Words(), graph := Graph())
    found = run(model, text("ab"), text("abc"), text("cd", "ef"))
    assert found == [answer(b"ab"), answer(b"abc"), answer(b"cd", b"ef")]
    assert [fed.shape for fed in graph.fed] == [(3, 2), (1, 3)]
    assert run(model, text("ab"), outputs=("size",)) == [{"size": [2]}]


def test_who_raises_fails_alone_and_is_told_where() -> None:
    model = handled(Words(), graph := Graph())
    found = run(model, text("ab"), text("\u00e9"), text("LookupError"), text("bad"), text("cd"))
    assert [found[0], found[4]] == [answer(b"ab"), answer(b"cd")]
    caller, handler, post = found[1:4]
    where = "model m, signature s: handler words:Words, "
    assert (caller.fault, handler.fault, post.fault) == (Fault.INVALID_INPUT, Fault.MODEL_FAILED, Fault.MODEL_FAILED)
    assert all(type(each) is Failed for each in (caller, handler, post))
    assert caller.text.startswith(where + "preprocess: UnicodeDecodeError: 'ascii' codec")
    assert handler.text.startswith(where + "preprocess: LookupError: not found (test_handlers.py, line ")
    assert post.text.startswith(where + "postprocess: ValueError: a bad word (test_handlers.py, line ")
    assert [fed.shape for fed in graph.fed] == [(2, 2), (1, 3)]


def test_a_run_that_fails_is_of_those_who_shared_it() -> None:
    def picky(feeds: Mapping[str, Array]) -> dict[str, Array]:
        if feeds["x"].shape[1] == 2:
            raise Refused("not two", Fault.MODEL_FAILED)
        return {"y": feeds["x"] * 2}

    model = handled(Words(), Graph(picky))
    spoiled = Spoiled(Fault.MODEL_FAILED, "not two")
    assert run(model, text("ab"), text("abc"), text("cd")) == [spoiled, answer(b"abc"), spoiled]
    assert run(model, text("ab")) == [Failed(Fault.MODEL_FAILED, "not two")]


def test_each_group_is_padded_to_an_allowed_size() -> None:
    model = handled(Words(), graph := Graph(), sizes=(2, 4))
    assert run(model, text("ab"), text("c"), text("de", "fg")) == [answer(b"ab"), answer(b"c"), answer(b"de", b"fg")]
    assert [fed.shape for fed in graph.fed] == [(4, 2), (2, 1)]
    assert graph.fed[1].tolist() == [[99], [99]]


def test_a_graph_that_does_not_keep_its_rows_is_run_part_by_part() -> None:
    model = handled(Words(), graph := Graph(lambda feeds: {"y": feeds["x"][:1] * 2}))
    for _ in range(2):
        assert run(model, text("ab"), text("cd")) == [answer(b"ab"), answer(b"cd")]
    assert [len(fed) for fed in graph.fed] == [2, 1, 1, 1, 1]
    (differs,) = run(model, text("ab", "cd"))
    assert differs == RowsChanged("model m, signature s: output 'text' came back with 1 rows where 2 were fed")


def test_inputs_that_have_no_rows_are_handled_job_by_job() -> None:
    class Scalar:
        inputs = WIDTH

        def preprocess(self, inputs: Mapping[str, Array], signature: str) -> dict[str, Any]:  # noqa: ARG002
            return {"x": np.ones((1, int(inputs["width"])), np.float32)}

    assert run(handled(Scalar()), {"width": np.int32(3)}, by_rows=False) == [{"y": [[2, 2, 2]]}]


def test_a_method_or_a_declaration_may_be_left_out() -> None:
    class After:
        def postprocess(self, outputs: Mapping[str, Array], signature: str) -> dict[str, Any]:  # noqa: ARG002
            return {"y": outputs["y"] + 1}

    model = handled(After())
    assert model.info == ModelInfo("m", "stub:m", Graph().info.signatures, False, "words:Words")
    assert run(model, {"x": [[1.0]]}) == [{"y": [[3]]}]


def test_what_it_is_given_cannot_be_written_and_what_it_hands_on_is_copied() -> None:
    class Same:
        def preprocess(self, inputs: Mapping[str, Array], signature: str) -> Any:  # noqa: ARG002
            assert not inputs["x"].flags.writeable
            self.kept = inputs["x"]
            return inputs

        def postprocess(self, outputs: Mapping[str, Array], signature: str) -> Any:  # noqa: ARG002
            assert not outputs["y"].flags.writeable
            return {"y": self.kept}

    model = handled(Same(), Graph(lambda feeds: {"y": feeds["x"]}))
    given = np.ones((1, 2), np.float32)
    (found,) = model.run_parts("s", [{"x": given}], ("y",), BatchMemory())
    assert isinstance(found, dict)
    assert not np.may_share_memory(found["y"], given)
    assert given.flags.writeable


@pytest.mark.parametrize(
    ("gives", "told"),
    [
        (None, "it gave NoneType, not a dict of arrays"),
        ({}, "it gave nothing; expected are 'x'"),
        ({"x": 1, "z": 2}, "it gave 'x', 'z'; expected are 'x'"),
        ({"x": [1.0]}, "it gave 'x' as float64 [1]; expected is float32 [?, ?]"),
        ({"x": np.array([[1e300]])}, "it gave 'x' as float64 [1, 1]; expected is float32 [?, ?]"),
        (
            {"x": [[object()]]},
            "it gave 'x', which is not an array: an element is neither a number nor a string",
        ),
        (SystemExit(3), "SystemExit: 3 (test_handlers.py"),
    ],
)
def test_what_it_may_not_give_is_its_own_fault(gives: Any, told: str) -> None:
    class Gives:
        def preprocess(self, inputs: Mapping[str, Array], signature: str) -> Any:  # noqa: ARG002
            if isinstance(gives, BaseException):
                raise gives
            return gives

    (found,) = run(handled(Gives()), {"x": [[1.0]]})
    assert isinstance(found, Failed)
    assert found.fault is Fault.MODEL_FAILED
    assert found.text.startswith("model m, signature s: handler words:Words, preprocess: ")
    assert told in found.text


def test_no_memory_is_told_as_such_and_a_broken_process_ends() -> None:
    class Large:
        def preprocess(self, inputs: Mapping[str, Array], signature: str) -> Any:  # noqa: ARG002
            raise MemoryError("3 GiB")

    (found,) = run(handled(Large()), {"x": [[1.0]]})
    assert found.fault is Fault.OUT_OF_MEMORY

    def broken(feeds: Mapping[str, Array]) -> Any:  # noqa: ARG001
        raise ProcessUnusable("broken")

    with pytest.raises(ProcessUnusable):
        run(handled(Words(), Graph(broken)), text("ab"))


def test_what_python_may_do_with_an_array_nobody_knows() -> None:
    class Bears(Graph):
        def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:  # noqa: ARG002
            return True

    model = handled(Words(), Bears())
    assert not model.bears_change("s", ["text"], ["text"])
    assert model.bears_change(SESSION_RUN, ["x:0"], ["y:0"]), "which passes the handler by"


# --- how it is found


@pytest.fixture
def write(tmp_path: Path) -> Iterator[Callable[[str, str], HandlerSettings]]:
    """Writes a module and names its class `Handler`; the path and the modules are as they were afterwards."""
    path, modules = sys.path[:], set(sys.modules)

    def written(source: str, options: str = "{}") -> HandlerSettings:
        name = f"handler_under_test_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(source)
        return HandlerSettings(f"{name}:Handler", str(tmp_path), options)

    yield written
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("handler_under_test"):
            del sys.modules[name]


PASSES = "class Handler:\n    def preprocess(self, inputs, signature):\n        return inputs\n"


def test_it_is_made_once_with_what_it_is_to_know(write: Callable[..., HandlerSettings]) -> None:
    source = """
class Handler:
    def __init__(self, context):
        spec = context.signatures["s"].inputs["x"]
        self.inputs = {"s": {context.options["name"]: (spec.dtype, [None, len(context.model)])}}

    def preprocess(self, inputs, signature):
        return {"x": inputs["given"]}
"""
    handler = load_handler(write(source, '{"name": "given"}'), Graph().info)
    assert handler.info.signatures["s"].inputs == {"given": TensorSpec("float32", (-1, 1))}
    assert handler.info.handler.endswith(":Handler")
    assert sys.path[0] != str(Path(sys.modules[handler.info.handler.partition(":")[0]].__file__ or "").parent)


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("import no_such_module_at_all", "it cannot be imported: ModuleNotFoundError: No module named"),
        ("x = 1\n1 / 0", "it cannot be imported: ZeroDivisionError: division by zero (handler_under_test"),
        ("raise SystemExit", "it cannot be imported: SystemExit: (handler_under_test"),
        ("def Handler(): pass", ".py has no class Handler"),
        ("class Handler:\n    def __init__(self): pass", "it cannot be created: TypeError: Handler.__init__() takes 1"),
        ("class Handler: pass", "it has neither a method preprocess nor a method postprocess"),
        (
            "class Handler:\n    def __init__(self, context): raise OSError('no labels.txt')",
            "it cannot be created: OSError: no labels.txt",
        ),
        (
            PASSES + "    outputs = {'s': {'y': ('string', None)}}",
            "it declares outputs but has no method postprocess to convert them",
        ),
        (
            PASSES + "    inputs = {'t': {}}",
            "its inputs name the signature 't', which the model does not have: s",
        ),
        (
            PASSES + "    inputs = {'s': {'x': 'float32'}}",
            "its inputs are not valid: TypeError",
        ),
        (
            PASSES + "    inputs = {'s': {'x': ('float', [1])}}",
            "its inputs are not valid: ValueError: no dtype 'float'",
        ),
        (
            PASSES + "    inputs = {'s': {'x\\udcff': ('float32', [1])}}",
            r"its inputs are not valid: ValueError: no name 'x\udcff'",
        ),
        (
            PASSES + "    inputs = {'s': {1: ('float32', [1])}}",
            "its inputs are not valid: ValueError: no name 1",
        ),
    ],
)
def test_what_cannot_be_loaded_is_one_line(write: Callable[..., HandlerSettings], source: str, told: str) -> None:
    with pytest.raises(CannotLoad) as caught:
        load_handler(write(source), Graph().info)
    line = str(caught.value)
    assert line.startswith("model m: handler handler_under_test_")
    assert told in line
    assert "\n" not in line


def test_a_module_that_is_not_there_and_one_that_is_hidden(
    write: Callable[..., HandlerSettings], tmp_path: Path
) -> None:
    with pytest.raises(CannotLoad, match=r"looked for in the installed packages$"):
        load_handler(HandlerSettings("no_such_module_at_all:Handler"), Graph().info)
    write("")
    (tmp_path / "json.py").write_text(PASSES)
    with pytest.raises(CannotLoad, match=r"module json of .* is hidden by .*__init__\.py; rename it"):
        load_handler(HandlerSettings("json:Handler", str(tmp_path)), Graph().info)

"""Are the rows of a signature independent? An abstract interpretation of its graph, which runs nothing.

Jobs are joined only where this proves that each row of an output follows from the same row of the inputs alone. A graph
wrongly proven would give wrong answers in silence, so whatever is not understood stops the proof. What ops do is in
`workers.tf.row_rules`; here are the walk over a graph and its functions, control flow, and effects.
"""

import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from workers.tf.graph import Reachable, draws_random, writes_state
from workers.tf.row_rules import RULES, applied
from workers.tf.row_values import Every, Op, Reserved, Stop, Tensor, Unknown, Value, op_def
from workers.tf.sizes import ROWS, fresh

_MOST_STEPS = 1_000_000
_DEEPEST = 40
_MOST_ROUNDS = 8
_OLD_CONTROL = re.compile("(Ref)?(Switch|Merge|Enter|Exit|NextIteration)|LoopCond")
_Names = Mapping[str, str]
_Shapes = Mapping[str, tuple[int, ...] | None]
_Source = tuple[str, int]


def prove(
    graph_def: Any, feeds: _Names, shapes: _Shapes, fetches: _Names, constants: Collection[str] = ()
) -> dict[str, str]:
    """For each of `fetches`: empty if it is proven to hold one row for each row of the inputs, else why not, one line.

    `feeds` and `fetches` map names to tensors ("x:0"), `shapes` the inputs to what is checked before a run (-1: any
    size). `constants`: of the feeds, those that are the same for all jobs. Joined jobs must have inputs of equal shapes
    but for axis 0, which has one size, at least 1, in all inputs of a job. It raises nothing.
    """
    try:
        proof, body = _Proof(graph_def), _Body(graph_def.node)
        given: dict[_Source, Value] = {}
        for name, tensor in feeds.items():
            shape = shapes.get(name)
            sizes = [size if size >= 0 else fresh() for size in shape or ()]
            if name in constants:
                given[body.source(tensor)] = Tensor(None if shape is None else tuple(sizes))
                continue
            if not shape or shape[0] >= 0:
                proof.stop(f"input {name!r} has no axis 0 of any size")
            given[body.source(tensor)] = Tensor((ROWS, *sizes[1:]))
        proof.check_effects(fetches.values(), feeds.values())
        values = proof.run(body, given, [body.source(tensor) for tensor in fetches.values()])
        return {name: proof.stopped or _verdict(name, value) for name, value in zip(fetches, values, strict=True)}
    except Exception as error:
        return dict.fromkeys(fetches, f"the graph cannot be analysed: {' '.join(repr(error).split())}")


def _verdict(name: str, value: Value) -> str:
    if isinstance(value, Unknown):
        return value.why
    if value.axis != 0:
        return f"output {name!r} has no rows at axis 0"
    return "" if value.shape[0] == ROWS else f"output {name!r} has more than one entry for each row"


class _Body:
    """Nodes by name, of the graph or of a function, and how inputs name their tensors."""

    def __init__(self, nodes: Iterable[Any], function: Any = None) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.arguments, self.results, self.effects = [], [], []
        if function:
            self.arguments = [(arg.name, 0) for arg in function.signature.input_arg]
            self.results = [self.source(function.ret[arg.name]) for arg in function.signature.output_arg]
            # These run, whether or not a result needs them.
            self.effects = [node.name for node in nodes if op_def(node.op).is_stateful]
            self.effects += function.control_ret.values()

    def source(self, text: str) -> _Source:
        """The node, or argument, and the number of its output."""
        name, *parts = text.split(":")
        place = int(parts.pop()) if parts and parts[-1].isdigit() else 0
        counts = Op(self.nodes[name], ()).counts if parts else []
        return name, place + sum(count for _, count in itertools.takewhile(lambda pair: pair[0] != parts[0], counts))


class _Proof:
    def __init__(self, graph_def: Any) -> None:
        self._graph_def = graph_def
        self._library = {function.signature.name: function for function in graph_def.library.function}
        self._bodies = (graph_def.node, *(function.node_def for function in graph_def.library.function))
        self._asserts = any(node.op in _ASSERTIONS for nodes in self._bodies for node in nodes)
        self._steps = self._depth = 0
        self.stopped = ""  # what stops the proof of every output

    def stop(self, why: str) -> None:
        self.stopped = self.stopped or why

    def check_effects(self, fetches: Iterable[str], feeds: Iterable[str]) -> None:
        for op in sorted(Reachable(self._graph_def).ops(fetches, feeds)):
            what = f"{op} {next((node.name for nodes in self._bodies for node in nodes if node.op == op), '')!r}"
            if op_def(op) is None or _OLD_CONTROL.fullmatch(op):
                self.stop(f"{what} is a call or control flow of TensorFlow 1, or no op that is known")
            elif writes_state([op]):
                self.stop(f"{what} writes state")
            elif op not in _CONTROL and any("func" in attr.type for attr in op_def(op).attr):
                self.stop(f"{what} runs functions that are not looked into")  # they may assert, or draw at random
            elif op_def(op).is_stateful and not (op in RULES or op in _CONTROL or draws_random([op])):
                self.stop(f"{what} may have effects")

    def run(self, body: _Body, given: Mapping[_Source, Value], wanted: Sequence[_Source]) -> list[Value]:
        """Without recursion over nodes: graphs may be deep."""
        done: dict[str, Sequence[Value]] = {}
        begun: set[str] = set()

        def value(source: _Source) -> Value:
            if source not in given and (source[0] not in done or self.stopped):
                return Unknown(self.stopped or f"{source[0]!r} is missing or in a loop")
            return given[source] if source in given else done[source[0]][source[1]]

        pending = [name for name, place in wanted if (name, place) not in given] + body.effects
        while pending and not self.stopped:
            node = body.nodes.get(pending[-1])
            if node is None or node.name in done:
                pending.pop()
                continue
            sources = [body.source(text) for text in node.input if not text.startswith("^")]
            if node.name in begun:
                done[node.name] = self._evaluated(Op(node, [value(source) for source in sources]))
            begun.add(node.name)
            needs = [name for name, place in sources if (name, place) not in given]
            needs += [text[1:] for text in node.input if text.startswith("^")]
            pending += [need for need in needs if need not in begun]
        return [value(source) for source in wanted]

    def _evaluated(self, op: Op) -> Sequence[Value]:
        self._steps += 1
        if self._steps > _MOST_STEPS:
            self.stop("the graph has too many ops, counted once for each call of a function")
        try:
            found = _CONTROL[op.type](self, op) if op.type in _CONTROL else self._by_rule(op)
        except Exception as error:
            why = str(error) if isinstance(error, Stop) else "is used in a way that has no rule"
            found = Unknown(f"{op.type} {op.node.name!r} {why}")
            if op.type in _CONTROL and self._asserts:  # one might fail in a job alone, and not among others
                self.stop(found.why)
        return [found] * op.outputs if isinstance(found, Value) else found

    def _by_rule(self, op: Op) -> Value | Sequence[Value]:
        for each in op.inputs:
            if type(each) is Unknown:
                return each
            if isinstance(each, Every):
                holds = op.type in ("All", "Identity", "LogicalAnd") and all(map(_holds, op.inputs))
                return each if holds else Unknown(each.why)
        # What has no state, and takes what is the same in each run, gives the same in each run.
        is_free = all(map(_is_free, op.inputs)) and (op.type in RULES or not op_def(op.type).is_stateful)
        try:
            return applied(op)
        except Exception:
            if not is_free:
                raise
        return Tensor(None)

    def _call(self, function: str, inputs: Sequence[Value]) -> list[Value]:
        body = _Body(self._library[function].node_def, self._library[function])
        if self._depth >= _DEEPEST:
            raise Stop("calls functions that are nested too deeply")
        self._depth += 1
        results = self.run(body, dict(zip(body.arguments, inputs, strict=True)), body.results)
        self._depth -= 1
        return results

    def _entered(self, op: Op) -> list[Value]:
        return self._call(op.attr("f").func.name, op.inputs)

    def _loop(self, op: Op) -> list[Value]:
        """What holds before and after each round holds at the end, if all jobs take as many rounds."""
        state = [*op.inputs]
        for _ in range(_MOST_ROUNDS):
            if not _is_free(self._call(op.attr("cond").func.name, state)[0]):
                raise Stop("runs as often as the rows say, or their number")
            after = self._call(op.attr("body").func.name, state)
            joined = [_joined(op, *pair) for pair in zip(state, after, strict=True)]
            if joined == state:
                return state
            state = joined
        raise Stop("does not come to rest")

    def _branches(self, op: Op) -> list[Value]:
        names = [op.attr("then_branch").func.name, op.attr("else_branch").func.name]
        choice, arguments = op.inputs[0], op.inputs[1:]
        if isinstance(choice, Every) and all(node.op in _IDLE for node in self._library[names[0]].node_def):
            self._call(names[1], arguments)  # it asserts what was asked of every row
            return [Unknown(choice.why)] * op.outputs
        if not _is_free(choice):
            raise Stop("chooses by the rows, or by their number")
        return [*map(partial(_joined, op), *(self._call(name, arguments) for name in names))]

    def _assert(self, op: Op) -> list[Value]:
        """A joined run must fail wherever one of its jobs would have failed alone."""
        if not _holds(op.inputs[0]):
            raise Stop("asserts something that is not asked of each row")
        return []

    def _ensure_shape(self, op: Op) -> list[Value]:
        tensor, shape = op.tensor(0, True), op.attr("shape").shape
        if tensor.axis is not None and not shape.unknown_rank and shape.dim[tensor.axis].size >= 0:
            raise Stop("asks for a number of rows")
        return [tensor]


_CONTROL: dict[str, Callable[[_Proof, Op], list[Value]]] = {
    **dict.fromkeys(("PartitionedCall", "StatefulPartitionedCall"), _Proof._entered),
    **dict.fromkeys(("While", "StatelessWhile"), _Proof._loop),
    **dict.fromkeys(("If", "StatelessIf"), _Proof._branches),
    "Assert": _Proof._assert,
    "CheckNumerics": lambda _, op: [op.tensor(0)],
    "EnsureShape": _Proof._ensure_shape,
    "IdentityN": lambda _, op: [*op.inputs],
}
_ASSERTIONS = ("Assert", "CheckNumerics", "EnsureShape")
_IDLE = frozenset({"Const", "Identity", "NoOp"})


def _is_free(value: Value) -> bool:
    return isinstance(value, Tensor) and value.is_free


def _holds(value: Value) -> bool:
    return isinstance(value, Every) or _is_free(value)


def _joined(op: Op, one: Value, other: Value) -> Value:
    """What is true of both."""
    if one == other or type(one) is Unknown:
        return one
    if isinstance(one, Reserved) and isinstance(other, Tensor):  # lists, which may be of unlike lengths
        return one.listed(other.without([0]))
    if type(other) is Unknown:
        return other
    if isinstance(one, Tensor) and isinstance(other, Tensor) and one.is_free and other.is_free:
        return Tensor(one.dims if one.dims == other.dims else None)
    return Unknown(f"{op.type} {op.node.name!r} has unlike values in its branches or rounds")

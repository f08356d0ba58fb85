"""What a run of a graph may do, judged by the types of the ops that it can reach.

A wrong "it writes" costs a retry after a crash, a wrong "it does not" runs a job twice. Drawing random numbers is no
state: a repeated run is as random as the first. Nor is what lives within one run (TensorArray, Stack,
TemporaryVariable), nor are summaries and reads.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from workers.backend import CannotLoad
from workers.tf.library import custom_state_ops


class Reachable:
    """Walks a `GraphDef` back from tensors, over data and control inputs, into the bodies of functions.

    A body counts as a whole: what writes state in it is there for its effect, not for its outputs, and runs
    whether or not an output needs it. Both branches of a conditional count.
    """

    def __init__(self, graph_def: Any) -> None:
        self.graph_def = graph_def
        self._nodes = {node.name: node for node in graph_def.node}
        self._functions = {function.signature.name: function for function in graph_def.library.function}

    def ops(self, names: Iterable[str], fed: Iterable[str] = ()) -> frozenset[str]:
        """The types of all ops that fetching the tensors `names` ("node:0") may run.

        What only leads to tensors that are `fed` does not run.
        """
        nodes = [self._nodes[name] for name in self.nodes(names, fed)]
        ops: set[str] = set()
        seen: set[str] = set()
        while nodes:
            ops.update(node.op for node in nodes)
            called = self._called(nodes) - seen
            seen |= called
            nodes = [node for name in called for node in self._functions[name].node_def]
        return frozenset(ops)

    def nodes(self, names: Iterable[str], fed: Iterable[str] = ()) -> set[str]:
        """The names of all nodes that they may run, those in functions apart."""
        given = {name.removesuffix(":0") for name in fed}  # as inputs name them
        pending = [_node_name(name) for name in names if name.removesuffix(":0") not in given]
        seen = set(pending)
        while pending:
            read = self._nodes[pending.pop()].input
            inputs = {_node_name(name) for name in read if name not in given} - seen
            seen |= inputs
            pending.extend(inputs)
        return seen

    def functions(self, names: Iterable[str]) -> set[str]:
        """The names of the functions that the nodes below these tensors call, and of those that these call."""
        called = self._called(self._nodes[name] for name in self.nodes(names))
        return called.union(*(self._called(self._functions[name].node_def) for name in called))

    def _called(self, nodes: Iterable[Any]) -> set[str]:
        return {name for node in nodes for name in _functions_named_by(node) if name in self._functions}


_WRITING = (
    # Variables: reference ones (Assign, ScatterAdd, ApplyAdam), then resources.
    r"Assign\w*|Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|StridedSliceAssign|CountUpTo",
    r"Resource(Scatter\w+|StridedSliceAssign|CountUpTo)|DestroyResourceOp",
    r"(Resource)?(Sparse)?Apply[A-Z]\w*",
    # Into the buffer of their input, which may be a variable's or a caller's.
    r"Inplace(Add|Sub|Update)",
    # By the word-embedding ops of TensorFlow 1, and those of its linear models.
    r"NegTrain|Skipgram|SdcaShrinkL1",
    # What one run puts in and another takes out.
    r"Queue(Enqueue|Dequeue|Close)\w*",
    r"Barrier(InsertMany|TakeMany|Close)",
    r"(Map|OrderedMap)?(Stage|Unstage|UnstageNoKey|Clear)|StageClear",
    r"\w*Accumulator(ApplyGradient|TakeGradient|SetGlobalStep)",
    r"Add(Many)?SparseToTensorsMap|TakeManySparseFromTensorsMap",
    r"GetSessionHandle(V2)?|DeleteSessionTensor",
    # Tables. Initialising one is not here: it gives the same table each time.
    r"LookupTable(Insert|Import|Remove)\w*",
    # Positions: of a reader, of an iterator over a dataset.
    r"Reader(Read|Reset|Restore)\w*|RecordInput",
    r"IteratorGetNext\w*|MultiDeviceIterator(GetNext\w*|Init)|MakeIterator|DeserializeIterator",
    r"BoostedTrees(CenterBias|Create\w*|Deserialize\w*|Flush\w*|Update\w*)",
    r"BoostedTreesQuantileStreamResource(AddSummaries|Deserialize|Flush)",
    # Files, which outlive the process.
    r"WriteFile|Save(V2|Slices)?|MergeV2Checkpoints|DistributedSave|SaveDataset(V2)?",
    r"(Experimental)?DatasetToTFRecord",
)
_WRITES = re.compile("|".join(_WRITING))
_BLOCKS = re.compile(r"(Map|OrderedMap)?(Unstage|UnstageNoKey|Peek)|StagePeek")
FILLS_TABLE = re.compile(r"InitializeTable(FromTextFile|FromDataset)?(V2)?|LookupTableImport(V2)?")
_RANDOM = re.compile(
    r"\w*(Random|Multinomial|TruncatedNormal|CandidateSampler|DistortedBoundingBox)\w*"
    r"|Stateful(StandardNormal|Uniform)\w*|Rng\w+"
)


def writes_state(ops: Iterable[str]) -> bool:
    """Whether an op among these types writes what a later run may read, or keeps or overwrites its input."""
    return any(_WRITES.fullmatch(op) or op in custom_state_ops for op in ops)


def blocks_its_thread(ops: Iterable[str]) -> bool:
    """Whether an op may wait, in the thread that runs it, for another op of the run."""
    return any(map(_BLOCKS.fullmatch, ops))


def draws_random(ops: Iterable[str]) -> bool:
    return any(map(_RANDOM.fullmatch, ops))


def tensor_named(graph: Any, name: str, what: str) -> Any:
    """A tensor of a Graph, by its name "node:0". Raises `CannotLoad`: `what` names none."""
    try:
        return graph.as_graph_element(name, allow_operation=False)
    except (KeyError, ValueError, TypeError):
        names = [str(op.name) for op in graph.get_operations() if op.outputs]
        near = difflib.get_close_matches(name.partition(":")[0], names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise CannotLoad(f"{what} names {name!r:.80}, which is not a tensor of its graph{hint}") from None


def _node_name(tensor: str) -> str:
    return tensor.removeprefix("^").partition(":")[0]


def _functions_named_by(node: Any) -> Iterator[str]:
    """If and While name theirs in attributes; TensorFlow 1's own calls are ops of the function's name."""
    yield node.op
    for value in node.attr.values():
        kind = value.WhichOneof("value")
        if kind == "func":
            yield value.func.name
        elif kind == "list":
            yield from (function.name for function in value.list.func)


_CALLS = re.compile(r"(Stateful)?PartitionedCall|(Stateless)?(While|If|Case)")
_BRANCHES = re.compile(r"(Stateless)?(If|Case)")


def scopes(graph_def: Any) -> Iterator[tuple[str, Any]]:
    """The nodes of the graph itself, whose scope is "", and of each function, whose scope is its name."""
    yield "", graph_def.node
    for function in graph_def.library.function:
        yield function.signature.name, function.node_def


def called_by(node: Any, functions: Collection[str]) -> list[tuple[str, int]]:
    """The functions whose nodes run in place of this one, and which input is the first that each is given."""
    if node.op not in functions and not _CALLS.fullmatch(node.op):
        return []
    first = 1 if _BRANCHES.fullmatch(node.op) else 0
    return [(name, first) for name in _functions_named_by(node) if name in functions]

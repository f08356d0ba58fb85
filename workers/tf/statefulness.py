"""Whether running a signature can change what later runs return.

Judged by the names of the ops that a run may execute. A wrong yes costs a retry after a crash; a wrong no
would run a job twice. Drawing random numbers is not counted: a repeated run is as random as the first. Nor
is what lives within one run (TensorArray, Stack, TemporaryVariable), nor summaries, nor reads.
"""

import re
from collections.abc import Iterable

__all__ = ["blocks_its_thread", "touches_files", "uses_references", "writes_references", "writes_state"]

_WRITES = (
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
    r"WriteFile|Save(V2|Slices)?|MergeV2Checkpoints|DistributedSave|SaveDataset(V2)?|(Experimental)?DatasetToTFRecord",
)
# Variables of TensorFlow 1, which are written in the very buffer that a fetched value may be. That of a resource
# variable is replaced as long as somebody holds it, a fetched array too. Inplace ops write whatever they are given.
_INPLACE = r"Inplace(Add|Sub|Update)"
_REFERENCES = rf"Variable(V2)?|{_INPLACE}"
_WRITES_REFERENCES = (
    r"Assign(Add|Sub)?|Scatter(Nd)?(Add|Sub|Mul|Div|Min|Max|Update)|StridedSliceAssign|CountUpTo"
    rf"|(Sparse)?Apply[A-Z]\w*|NegTrain|SdcaShrinkL1|{_INPLACE}"
)
_BLOCKS = r"(Map|OrderedMap)?(Unstage|UnstageNoKey|Peek)|StagePeek"

# By a path or an address that they are given, or by such a handle. What of the writers above is one is not repeated.
_FILES = (
    r"ReadFile|MatchingFiles|(DTensor)?Restore(V2|Slice)?|LoadAndRemapMatrix|GenerateVocabRemapping",
    r"InitializeTableFromTextFile(V2)?|(WholeFile|TextLine|FixedLengthRecord|TFRecord|LMDB)Reader(V2)?",
    r"(Experimental)?(TextLine|TFRecord|FixedLengthRecord|CSV|LMDB|Sql|MatchingFiles|Cache|Load)Dataset(V2)?",
    r"(List)?Snapshot(Nested)?(Chunks?)?Dataset(V2|Reader)?|CreateSummary(File|Db)Writer|ImportEvent",
    r"(Initialize|Serialize)TRTResource|FileSystemSetConfiguration",
    r"DataServiceDataset(V\d)?|RegisterDataset(V2)?|Rpc(Client|Server)",
    # Runs a graph that it is fed.
    r"DatasetFromGraph",
)
_writes = re.compile("|".join(_WRITES))
_touches_files = re.compile("|".join(_FILES))
_references = re.compile(_REFERENCES)
_writes_references = re.compile(_WRITES_REFERENCES)
_blocks = re.compile(_BLOCKS)


def writes_state(ops: Iterable[str]) -> bool:
    """True if an op among these types writes what a later run may read, or keeps or overwrites its input."""
    return any(_writes.fullmatch(op) for op in ops)


def touches_files(ops: Iterable[str]) -> bool:
    """True if an op among these types reads a file, opens one or calls another machine, and `writes_state` says not."""
    return any(_touches_files.fullmatch(op) for op in ops)


def uses_references(ops: Iterable[str]) -> bool:
    """True if a reference variable is among these, or what writes in place: an output may be what a run writes."""
    return any(_references.fullmatch(op) for op in ops)


def writes_references(ops: Iterable[str]) -> bool:
    """True if an op among these types writes into a buffer that another run may have fetched."""
    return any(_writes_references.fullmatch(op) for op in ops)


def blocks_its_thread(ops: Iterable[str]) -> bool:
    """True if an op among these types may wait, in the thread that runs it, for another op of the run."""
    return any(_blocks.fullmatch(op) for op in ops)

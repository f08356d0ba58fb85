"""Every op of this TensorFlow that is given something to write is known to write it, or known not to."""

import re

import pytest
import tensorflow as tf
from tensorflow.core.framework import op_def_pb2, types_pb2
from tensorflow.python.client import pywrap_tf_session

from workers.tf.statefulness import touches_files, uses_references, writes_references, writes_state

pytestmark = pytest.mark.tensorflow

# Looked at one by one. One that is in none of these is new: does it keep, or write, what a later run finds?
HARMLESS = {
    "reads": r"""
        ReadVariableOp _ReadVariablesOp ReadVariableXlaSplitND ResourceGather(Nd)? VariableShape VarIsInitializedOp
        IsVariableInitialized DisableCopyOnRead IsResourceHandleRefCounting MakeWeakResourceHandle
        LookupTable(Find|Size|Export)(V2)? Queue(Size|IsClosed)(V2)? Barrier(Incomplete|Ready)Size
        (Resource)?AccumulatorNumAccumulated Reader(NumRecordsProduced|NumWorkUnitsCompleted|SerializeState)(V2)?
        (Experimental)?IteratorGetDevice IteratorGetModelProto (MultiDevice)?IteratorToStringHandle SerializeIterator
        IsBoostedTrees\w+Initialized BoostedTrees(\w*Predict|ExampleDebugOutputs|GetEnsembleStates|SerializeEnsemble)
        BoostedTreesQuantileStreamResourceGetBucketBoundaries FakeQueue
    """,
    "passes a reference on": r"Ref(Enter|Exit|Identity|Merge|NextIteration|Select|Switch) DebugGradientRefIdentity",
    "gives the same table each time": r"InitializeTable(FromTextFile|FromDataset)?(V2)?",
    "draws random numbers": r"Stateful(Random|Standard|Truncated|Uniform)\w* RngSkip RngReadAndSkip RandomDatasetV2",
    "lives within a run": r"TensorArray\w+ Stack(Close|Pop|Push)(V2)? DestroyTemporaryVariable MutexLock",
    "summaries": r"""
        (Close|Flush)SummaryWriter CreateSummary\w+Writer ImportEvent Write\w*Summary (Experimental)?StatsAggregator\w+
    """,
    "for all the workers of a cluster, not for one": r"Collective\w+V[23] DataServiceDataset\w* Rpc\w+",
    "for a TPU": r"TPUReshardVariables _TPUReplicate XlaLaunch _XlaCompile",
    "TensorFlow's own tests": r"Ref(In|Out)(put\w*)? TwoRefsIn Resource(Create|Initialized|Using)Op",
    "gives back what is no longer held": r"Delete(Iterator|MultiDeviceIterator|MemoryCache|SeedGenerator)"
    r" Delete(RandomSeedGenerator|RpcFutureResource)",
    "makes a dataset": r"""
        CacheDatasetV2 ShuffleDatasetV[23] ShuffleAndRepeatDatasetV2 GlobalShuffleDataset
        (Experimental)?ThreadPoolDataset (Experimental)?SetStatsAggregatorDataset
    """,
}
_harmless = re.compile("|".join("|".join(patterns.split()) for patterns in HARMLESS.values()))


@pytest.fixture(scope="module")
def ops() -> dict[str, op_def_pb2.OpDef]:
    known = op_def_pb2.OpList.FromString(pywrap_tf_session.TF_GetBuffer(pywrap_tf_session.TF_GetAllOpList()))
    return {op.name: op for op in known.op}


def takes(op: op_def_pb2.OpDef, kind: int) -> bool:
    return any(each.type == kind for each in op.input_arg)


def test_each_op_that_is_given_a_reference_or_a_resource_is_judged(ops):
    given = {
        op.name
        for op in ops.values()
        if any(each.is_ref for each in op.input_arg) or (op.is_stateful and takes(op, types_pb2.DT_RESOURCE))
    }
    assert len(given) > 200
    unknown = sorted(name for name in given if not writes_state([name]) and not _harmless.fullmatch(name))
    assert not unknown
    assert not sorted(name for name in given if writes_state([name]) and _harmless.fullmatch(name))


def test_what_writes_a_reference_of_numbers_is_known_to(ops):
    """The others that are given one are given the handle of a queue, a table or a reader, which is a string."""
    for op in ops.values():
        numbers = [each for each in op.input_arg if each.is_ref and each.type != types_pb2.DT_STRING]
        if numbers and not _harmless.fullmatch(op.name):
            assert writes_references([op.name]), op.name


def test_what_gives_a_reference_of_numbers_is_known_to(ops):
    made = {op.name for op in ops.values() if any(each.is_ref for each in op.output_arg) and not op.input_arg}
    handles = {name for name in made if all(each.type == types_pb2.DT_STRING for each in ops[name].output_arg)}
    unknown = {name for name in made - handles if not uses_references([name]) and not _harmless.fullmatch(name)}
    assert unknown == {"TemporaryVariable"}, "which is gone with the run"


# By an input of such a name an op can be told where to read, write or connect.
WHERE = re.compile(r"file|path|^prefix$|prefixes|logdir|directory|uri|address|data_source|^patterns?$|checkpoint|vocab")
OPENS_NOTHING = frozenset(("RegexReplace", "RegexFullMatch"))
"""Whose pattern is none of names."""


def test_each_op_that_is_told_where_a_file_is_is_judged(ops):
    told = {
        op.name
        for op in ops.values()
        for each in op.input_arg
        if each.type in (types_pb2.DT_STRING, types_pb2.DT_INVALID) and WHERE.search(each.name)
    }
    assert len(told) > 40
    assert {name for name in told if not touches_files([name]) and not writes_state([name])} == OPENS_NOTHING


V1 = tf.compat.v1
RAW = tf.raw_ops
SIZE = 4096
WRITES = {
    "assign": lambda v, x: RAW.AssignVariableOp(resource=v, value=x),
    "assign_add": lambda v, x: RAW.AssignAddVariableOp(resource=v, value=x),
    "assign_sub": lambda v, x: RAW.AssignSubVariableOp(resource=v, value=x),
    "scatter_add": lambda v, _: RAW.ResourceScatterAdd(resource=v, indices=[0, 1], updates=[7.0, 7.0]),
    "scatter_update": lambda v, _: RAW.ResourceScatterUpdate(resource=v, indices=[0, 1], updates=[7.0, 7.0]),
    "scatter_nd": lambda v, _: RAW.ResourceScatterNdUpdate(ref=v, indices=[[0], [1]], updates=[7.0, 7.0]),
    "slice": lambda v, _: RAW.ResourceStridedSliceAssign(ref=v, begin=[0], end=[2], strides=[1], value=[5.0, 5.0]),
    "descent": lambda v, x: RAW.ResourceApplyGradientDescent(var=v, alpha=1.0, delta=x),
}


@pytest.mark.parametrize("write", WRITES)
def test_a_fetched_array_outlives_a_write_of_its_resource_variable(write):
    """Which is why it is not copied: it is the variable's buffer, and the writer takes another while it is held."""
    with tf.Graph().as_default(), V1.Session() as session:
        variable = V1.get_variable("v", initializer=tf.range(SIZE, dtype=tf.float32), use_resource=True)
        x = tf.fill([SIZE], 3.0)
        value = variable.read_value()
        reads = [value, tf.slice(value, [0], [SIZE // 2]), tf.function(lambda: tf.identity(variable))()]
        written = WRITES[write](variable.handle, x)
        session.run(variable.initializer)
        for _ in range(3):
            fetched = session.run(reads)
            before = [array.copy() for array in fetched]
            session.run(written)
            assert all(map(np_equal, fetched, before))
            written_again = write in ("assign", "scatter_update", "scatter_nd", "slice")
            assert written_again or not np_equal(session.run(value), before[0])


def np_equal(one, other) -> bool:
    return bool((one == other).all())

"""What `prove` is asked: graphs of SavedModels, feeds anywhere, graphs that are deep, odd or broken."""

import random

import pytest

from proof.making import question, spec, tf, traced
from workers.tf.rows import prove

pytestmark = pytest.mark.tensorflow
v1 = tf.compat.v1


@pytest.fixture
def graph():
    with tf.Graph().as_default() as graph:
        yield graph


def asked(graph, feeds, fetch, **more):
    shapes = {tensor.name: tuple(-1 if size is None else size for size in tensor.shape) for tensor in feeds}
    answers = prove(graph.as_graph_def(), {name: name for name in shapes}, shapes, {"y": fetch.name}, **more)
    return answers["y"]


def dense(x, outputs, name):
    """As of 2016, with a variable of either kind."""
    weights = v1.get_variable(f"{name}_weights", [x.shape[-1], outputs], use_resource=name == "new")
    return v1.nn.xw_plus_b(x, weights, v1.get_variable(f"{name}_bias", [outputs], use_resource=False))


@pytest.mark.parametrize("is_frozen", [False, True])
def test_graphs_of_tensorflow_1(graph, is_frozen):
    image, words = v1.placeholder(tf.float32, [None, 8, 8, 1]), v1.placeholder(tf.int64, [None, 5])
    x = v1.nn.conv2d(image, v1.get_variable("filter", [3, 3, 1, 2], use_resource=False), [1, 2, 2, 1], "SAME")
    ones, zeros = tf.ones([2]), tf.zeros([2])
    x = v1.nn.fused_batch_norm(x, ones, zeros, zeros, ones, is_training=False)[0]
    x = tf.reshape(v1.nn.max_pool(x, [1, 2, 2, 1], [1, 2, 2, 1], "VALID"), [-1, 8])
    table = v1.get_variable("table", [50, 4], use_resource=False)
    y = tf.reduce_mean(v1.nn.embedding_lookup(table, words), 1)
    y = tf.nn.softmax(dense(v1.nn.relu(dense(tf.concat([x, y], 1), 6, "old")), 3, "new"), name="y")
    graph_def = graph.as_graph_def()
    if is_frozen:
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            graph_def = v1.graph_util.convert_variables_to_constants(session, graph_def, ["y"])
    feeds, shapes = {"image": image.name, "words": words.name}, {"image": (-1, 8, 8, 1), "words": (-1, 5)}
    assert prove(graph_def, feeds, shapes, {"y": y.name}) == {"y": ""}


def test_a_feed_stands_for_the_output_of_a_node(graph):
    x = v1.placeholder(tf.float32, [None, 2])
    mean = x - tf.reduce_mean(x, 0)
    assert asked(graph, [x], mean * 2.0)
    assert not asked(graph, [mean], mean * 2.0)
    assert not asked(graph, [x], x)


def test_defaults_and_constants(graph):
    x = v1.placeholder(tf.float32, [None, 2])
    rate = v1.placeholder_with_default(1.0, [], "rate")
    assert not asked(graph, [x], x * rate), "the graph computes it"
    assert not asked(graph, [x, rate], x * rate, constants=[rate.name])
    assert asked(graph, [x, rate], x * rate) == "input 'rate:0' has no axis 0 of any size"


def test_defaults_that_the_graph_computes(graph):
    x = v1.placeholder(tf.float32, [None, 2])
    for computed in (tf.reduce_max(x), tf.cast(tf.shape(x)[0], tf.float32)):
        assert asked(graph, [x], x * v1.placeholder_with_default(computed, []))


def test_the_oldest_variables_may_have_any_shape(graph):
    """Of three rows, each would get one of its own; a row alone gets all three."""
    x = v1.placeholder(tf.float32, [None, 4])
    assert "unknown rank" in asked(graph, [x], x + tf.raw_ops.Variable(shape=[], dtype=tf.float32))


def test_attributes_that_a_call_sets():
    graph_def, *others = question(traced(tf.function(lambda x: tf.function(lambda y: tf.stack([y, y]))(x)[0]), spec(2)))
    assert not any(prove(graph_def, *others).values())
    for function in graph_def.library.function:
        for node in function.node_def:
            if node.op == "Pack":
                node.attr["axis"].placeholder = "at"
    assert "each call" in next(iter(prove(graph_def, *others).values()))


def test_what_a_function_runs_beside_its_results():
    """A call that no result needs, and that says nothing of effects, runs where the function names it."""

    def checks(x):
        tf.debugging.Assert(tf.reduce_any(x > 0.0), [0])
        return x

    def checked(x):
        tf.function(checks, autograph=False)(x)
        return x * 2.0

    graph_def, *others = question(traced(tf.function(checked, autograph=False), spec(2)))
    for function in graph_def.library.function:
        for node in function.node_def:
            node.op = node.op.replace("StatefulPartitionedCall", "PartitionedCall")
            if node.op == "Identity":
                node.input[:] = [text for text in node.input if not text.startswith("^")]
    assert all(prove(graph_def, *others).values())


def test_the_shape_of_a_handle_is_not_that_of_its_variable(graph):
    x = v1.placeholder(tf.float32, [None, 4])
    handle = tf.raw_ops.VarHandleOp(dtype=tf.float32, shape=[4])
    assert asked(graph, [x], tf.reshape(x, [-1, tf.raw_ops.Size(input=handle)]))


def test_control_flow_of_tensorflow_1(graph):
    x = v1.placeholder(tf.float32, [None])
    taken = tf.raw_ops.Switch(data=x, pred=tf.constant(True))
    assert "control flow" in asked(graph, [x], tf.raw_ops.Merge(inputs=[*taken])[0])


def test_layer_normalisation_as_keras_2_fuses_it(graph):
    x = v1.placeholder(tf.float32, [None, 5, 4])
    shape = tf.shape(x)
    rows = tf.reshape(x, [1, shape[0] * 5, 4, 1])
    ones = tf.fill([shape[0] * 5], 1.0)
    fused = tf.raw_ops.FusedBatchNormV3(x=rows, scale=ones, offset=ones, mean=[], variance=[], data_format="NCHW")
    assert not asked(graph, [x], tf.reshape(fused.y, shape) * tf.ones([4]))


def test_assertions_of_each_row_are_no_obstacle():
    def checked(x):
        tf.debugging.assert_less(x, 5.0)
        tf.debugging.assert_equal(tf.shape(x)[1], 3)
        return x * 2.0

    function = tf.function(checked, input_signature=[spec(None)]).get_concrete_function()
    assert [*prove(*question(function)).values()] == [""]


def test_a_deep_graph_and_a_large_one(graph):
    graph_def = tf.Graph().as_graph_def()
    graph_def.node.add(name="x", op="Placeholder")
    for place in range(50_000):
        node = graph_def.node.add(name=f"n{place}", op="Relu", input=[f"n{place - 1}" if place else "x"])
        node.attr["T"].type = tf.float32.as_datatype_enum
    assert prove(graph_def, {"x": "x:0"}, {"x": (-1,)}, {"y": f"n{place}:0"}) == {"y": ""}


def test_functions_that_call_themselves_or_each_other_often():
    function = traced(tf.function(lambda x: tf.function(lambda y: y * 2.0)(x) + 1.0), spec(2))
    graph_def, *others = question(function)
    for body in graph_def.library.function:
        for node in body.node_def:
            if node.op == "PartitionedCall":
                node.attr["f"].func.name = body.signature.name
    assert all(prove(graph_def, *others).values())


def test_what_is_broken_raises_nothing():
    graph_def, feeds, shapes, fetches = question(traced(lambda x: tf.nn.softmax(tf.reshape(x, [-1, 2, 2])), spec(4)))
    r = random.Random(0)
    assert prove(graph_def, feeds, shapes, fetches) == {"0": ""}
    for _ in range(300):
        broken = type(graph_def).FromString(graph_def.SerializeToString())
        node = r.choice(broken.node)
        change = r.randrange(5)
        if change == 0:
            broken.node.remove(node)
        elif change == 1:
            node.op = r.choice(["Nonsense", "MatMul", "Split", "If", "Const", "While", "Einsum"])
        elif change == 2:
            node.attr.clear()
        elif change == 3:
            node.input.append(r.choice([node.name, "nowhere:9", "^nowhere"]))
        else:
            del node.input[:]
        assert all("\n" not in why for why in prove(broken, feeds, shapes, fetches).values())

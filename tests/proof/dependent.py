"""Graphs in which one row, or the number of rows, changes another row's answer. None may be proven.

Each stands for a rule that would let it through if it were wrong.
"""

import tensorflow as tf

from proof.making import spec

raw = tf.raw_ops
X, Y, S = spec(4), spec(None), spec(dtype=tf.string)
IMAGE = spec(4, 4, 2)


def looped_by_rows(x):
    return tf.while_loop(lambda y: tf.reduce_sum(y) < 100.0, lambda y: (y * 2.0 + 1.0,), (x,))[0]


def mixed_late(x):
    """The second round alone reads another row."""
    step = lambda i, y, z: (i + 1, z, tf.reverse(z, [0]))  # noqa: E731
    return tf.while_loop(lambda i, y, z: i < 2, step, (0, x, x))[1]


def columns(x):
    return tf.TensorArray(tf.float32, 4, element_shape=[None]).unstack(tf.transpose(x))


def guarded(x, condition):
    with tf.control_dependencies([tf.debugging.Assert(condition, [0])]):
        return tf.identity(x)


def guarded_other_branch(x):
    """Fails alone where all of a row is positive; in a batch, another row hides it."""
    check = lambda: tf.debugging.Assert(tf.reduce_all(x < 5.0), [0])  # noqa: E731
    done = tf.cond(tf.reduce_all(x > 0.0), lambda: (check(), 1)[1], lambda: 1)
    with tf.control_dependencies([done]):
        return tf.identity(x)


count = tf.Variable(0.0)


@tf.function
def written(x):
    count.assign(tf.reduce_sum(x))
    return x


def ordered_write(x):
    with tf.control_dependencies([written(x)]):
        return tf.identity(x)


def parsed_ragged(records):
    features = {"a": tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True)}
    return tf.io.parse_example(records, features)["a"]


def batch_norm(x, op="FusedBatchNormV3"):
    ones = tf.ones([2])
    return getattr(raw, op)(x=x, scale=ones, offset=ones, mean=ones[:0], variance=ones[:0], is_training=True).y


def conv_over_rows(x, op="Conv2DBackpropInput", sizes=(2, 2, 2, 2)):
    order, strides = [1, 0, *range(2, len(sizes))], [1] * len(sizes)
    x = tf.transpose(x, order)
    more = {"input_sizes": tf.shape(x), "filter": tf.ones(sizes), "strides": strides, "padding": "SAME"}
    return tf.transpose(getattr(raw, op)(out_backprop=x, **more), order)


def over_rows(op, shape, data="input", **more):
    """The rows are at axis 1, and the op works over them."""

    def function(x):
        order = [1, 0, *range(2, len(x.shape))]
        return tf.transpose(getattr(raw, op)(**{data: tf.transpose(x, order)}, **more), order)

    return function, spec(*shape)


def handles_by_row(x):
    """Each row chooses a variable. What is read is that of the first row."""
    both = raw.Pack(values=[one.handle, other.handle])
    chosen = raw.GatherV2(params=both, indices=tf.cast(x[:, 0] > 0.0, tf.int32), axis=0)
    return x + 0.0 * (one + other) + raw.ReadVariableOp(resource=chosen, dtype=tf.float32)


def minus_one(x, made):
    """A size that is not known and -1 stands for the rest, whose square then makes rows of several."""
    size = tf.shape(x)[1]
    less = size - (size + 1)
    rest = raw.Shape(input=made(less))[0]
    rows = tf.reshape(x[:, 0][:, None] * tf.ones([less * less]), [-1, rest * rest])
    return tf.reduce_sum(tf.reshape(rows - tf.reduce_max(rows, 1, keepdims=True), [-1, less * less]), 1)


def checked_numbers(x):
    """Fails alone where a row has no positive entry."""
    with tf.control_dependencies([raw.CheckNumerics(tensor=1.0 / tf.reduce_max(x), message="")]):
        return tf.identity(x)


def ensured_aside(x):
    """Fails alone, and among others where these make two rows."""
    with tf.control_dependencies([raw.EnsureShape(input=x, shape=[2, None])]):
        return tf.identity(x)


def never_set(x, sizes):
    """An item that was never set is zeros of the shape that is asked for."""
    items = raw.TensorListReserve(element_shape=-1, num_elements=2, element_dtype=tf.float32)
    items = raw.TensorListSetItem(input_handle=items, index=0, item=x)
    return raw.TensorListGetItem(input_handle=items, index=1, element_shape=sizes, element_dtype=tf.float32)


def kept_rank(x):
    """The sum of an axis that seems to have one entry."""
    known = tf.reduce_prod(tf.constant([2, 3]), keepdims=True)
    return tf.reduce_sum((x + tf.cast(known[None], tf.float32))[..., None], 1)


def batches_of_sizes(x):
    sizes = tf.stack([[4, 4], tf.fill([2], tf.shape(x)[0]), [4, 4], [4, 4]])
    found = raw.GatherV2(params=sizes, indices=[[0]] * 4, axis=1, batch_dims=1)
    return x + tf.cast(tf.reshape(found, [-1])[1], tf.float32)


def masks_of_no_axis(x):
    found = raw.StridedSlice(input=tf.stack([4, tf.shape(x)[0]]), begin=[1], end=[2], strides=[1], begin_mask=2)
    return x + tf.cast(found[0], tf.float32)


def conv_of_two_sizes(x):
    """The height is the number of rows, which two sizes without it and without channels hide."""
    options = {"strides": [1, 4, 1, 1], "padding": "SAME", "filter": tf.ones([1, 1, 2, 2])}
    return raw.Conv2DBackpropInput(input_sizes=[tf.shape(x)[0], 4], out_backprop=x[:, :1], **options)


def wrapped(x):
    """Five rows are one, and two are an error: int32 wraps."""
    rows = tf.reshape(x, [tf.shape(x)[0] * 2**30 // 2**30, -1])
    return x - tf.reduce_max(rows, 1, keepdims=True)


def wrapped_of_sizes(x):
    """As before, where each row has 2**15 entries."""
    count, size = tf.unstack(tf.shape(x))
    rows = tf.reshape(x, [count * size * size // size // size, -1])
    return x - tf.reshape(tf.reduce_max(rows, 1), [-1, 1])


def gathered_in_a_batch(x):
    """It gives [1, N, 2], and no [N, 5, 2]."""
    places = tf.cast(x[:, 0, 0], tf.int32)[None]
    found = raw.ResourceGather(resource=batch_of_one.handle, indices=places, dtype=tf.float32, batch_dims=1)
    return x - tf.reduce_mean(found, 1, keepdims=True) + tf.reduce_mean(batch_of_one)


def list_of_no_round(x, reserved=-1, stacked=-1):
    """No round sets an item, so zeros are stacked, of the shape that is asked for."""
    items = raw.TensorListReserve(element_shape=reserved, num_elements=2, element_dtype=tf.float32)
    setting = lambda i, items: (i + 1, raw.TensorListSetItem(input_handle=items, index=i, item=x))  # noqa: E731
    items = tf.while_loop(lambda i, _: i < 0, setting, (0, items))[1]
    stack = raw.TensorListStack(input_handle=items, element_shape=stacked, element_dtype=tf.float32)
    return tf.reduce_sum(1.0 + tf.reduce_mean(stack, 0), 1)


def two_listed(x, reserved=-1, made=-1, stacked=-1):
    """Fails but for two rows, wherever the list asks for them."""
    items = raw.TensorListFromTensor(tensor=x[None], element_shape=made)
    if reserved != -1:
        items = raw.TensorListReserve(element_shape=reserved, num_elements=1, element_dtype=tf.float32)
        items = raw.TensorListSetItem(input_handle=items, index=0, item=x)
    return raw.TensorListStack(input_handle=items, element_shape=stacked, element_dtype=tf.float32)[0]


def constant_listed(x):
    items = raw.TensorListFromTensor(tensor=x[None], element_shape=-1)
    items = raw.TensorListSetItem(input_handle=items, index=0, item=tf.ones([3, 4]))
    return raw.TensorListGetItem(input_handle=items, index=0, element_shape=-1, element_dtype=tf.float32)


def drawn_in_a_case(x):
    return x + tf.reshape(tf.switch_case(tf.constant(0), [lambda: tf.random.uniform([4])]), [4])


def looked_up_size(x):
    """The table says 8 for 4: each two rows become one."""
    size = sizes_table.lookup(tf.constant(4, tf.int64))
    rows = tf.reshape(x, tf.stack([-1, size]))
    return tf.reshape(rows - tf.reduce_max(rows, 1, keepdims=True), [-1, 4])


def named_examples(records):
    """Fails but for two rows."""
    texts = {"sparse_keys": tf.constant([], tf.string), "ragged_keys": tf.constant([], tf.string), "dense_keys": ["a"]}
    types = {"sparse_types": [], "ragged_value_types": [], "ragged_split_types": [], "dense_shapes": [[1]]}
    parsed = raw.ParseExampleV2(
        serialized=records, names=["b", "c"], dense_defaults=[[1.0]], num_sparse=0, **texts, **types
    )
    return parsed.dense_values[0]


one, other = tf.Variable([1.0]), tf.Variable([100.0])
batch_of_one = tf.Variable(tf.reshape(tf.range(10.0), [1, 5, 2]))
pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([4], tf.int64), tf.constant([8], tf.int64))
sizes_table = tf.lookup.StaticHashTable(pairs, 0)
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([b"b"])), "")


FLAT, CUBE = ({"strides": [1] * rank, "padding": "SAME"} for rank in (4, 5))
IMAGES, CUBES = (4, 4, 2), (4, 4, 4, 2)
OPS = {
    **{op: over_rows(op, [4], axis=[1], keep_dims=True) for op in ("Min", "Prod", "EuclideanNorm")},
    **{op: over_rows(op, [3], "images") for op in ("RGBToHSV", "HSVToRGB")},
    **{op: over_rows(op, IMAGES, "images", size=[3, 4]) for op in ("ResizeArea", "ResizeBicubic")},
    "ResizeNearestNeighbor": over_rows("ResizeNearestNeighbor", IMAGES, "images", size=[3, 4]),
    **{op: over_rows(op, [4, 4, 4], block_size=2) for op in ("DepthToSpace", "SpaceToDepth")},
    "LogSoftmax": over_rows("LogSoftmax", [4], "logits"),
    "Cumprod": over_rows("Cumprod", [4], "x", axis=1),
    "MirrorPad": over_rows("MirrorPad", [4], paddings=[[0, 0], [1, 0]], mode="SYMMETRIC"),
    "PadV2": over_rows("PadV2", [4], paddings=[[0, 0], [1, 0]], constant_values=1.0),
    "AvgPool": over_rows("AvgPool", IMAGES, "value", ksize=[1, 2, 1, 1], **FLAT),
    **{op: over_rows(op, CUBES, ksize=[1, 2, 1, 1, 1], **CUBE) for op in ("AvgPool3D", "MaxPool3D")},
    "Conv3D": over_rows("Conv3D", CUBES, filter=tf.ones([2, 1, 1, 2, 2]), **CUBE),
    "DepthwiseConv2dNative": over_rows("DepthwiseConv2dNative", IMAGES, filter=tf.ones([2, 1, 2, 1]), **FLAT),
    "transposed Conv3D": (lambda x: conv_over_rows(x, "Conv3DBackpropInputV2", [2] * 5), spec(*CUBES)),
    "transposed depthwise": (lambda x: conv_over_rows(x, "DepthwiseConv2dNativeBackpropInput", [2, 2, 2, 1]), IMAGE),
    **{op: (lambda x, op=op: batch_norm(x, op), IMAGE) for op in ("FusedBatchNorm", "FusedBatchNormV2")},
    **{op: (lambda x, op=op: getattr(raw, op)(x=x, y=x, adj_y=True), X) for op in ("BatchMatMul", "BatchMatMulV2")},
    "BatchMatMulV3": (lambda x: raw.BatchMatMulV3(x=x, y=x, adj_y=True, Tout=tf.float32), X),
    "ArgMin": (lambda x: x + tf.cast(tf.argmin(x, 0), tf.float32), X),
    "Split": (lambda x: tf.split(x, 3)[0], X),
    "SplitV": (lambda x: tf.split(x, [1, -1])[0], X),
    "Unpack": (lambda x: x + tf.unstack(x, 3)[0], X),
    **{op: (lambda x, op=op: getattr(raw, op)(input=x), X) for op in ("Rank", "Shape")},
    "ShapeN": (lambda x: raw.ShapeN(input=[x, x])[0], X),
    "Const": (lambda x: tf.constant([1.0, 2.0]), X),
    "Fill": (lambda x: tf.fill([2], 1.0), X),
    "VariableShape": (lambda x: raw.VariableShape(input=one.handle), X),
    "ReadVariableOp": (lambda x: one.read_value(), X),
    "ResourceGather": (lambda x: x + tf.gather(batch_of_one, tf.cast(x, tf.int32) * 0), spec()),
    "TensorListGetItem": (lambda x: tf.reduce_sum(columns(x).read(0), 0), X),
    "Pack": (lambda x: tf.reduce_sum(tf.stack([x, x]), 1), X),
    "ExpandDims": (lambda x: tf.reduce_sum(tf.expand_dims(x, 0), 1), X),
}
DEPENDENT = {
    **OPS,
    "variables chosen by row": (handles_by_row, spec(1)),
    "size of minus one, split": (
        lambda x: minus_one(
            x, lambda less: raw.SplitV(value=tf.ones([6]), size_splits=[less, 4], axis=0, num_split=2)[0]
        ),
        Y,
    ),
    "assertion on numbers": (checked_numbers, X),
    "ensured number of rows": (lambda x: tf.ensure_shape(x, [2, None]), X),
    "ensured by control input": (ensured_aside, X),
    "slice from the second row": (lambda x: tf.slice(x, [1, 0], [-1, -1]), X),
    "slice as wide as there are rows": (lambda x: tf.reduce_sum(tf.slice(x, [0, 0], [-1, tf.shape(x)[0]]), 1), X),
    "slice from the column of the count": (lambda x: tf.slice(x, [0, tf.shape(x)[0]], [-1, 1]), X),
    "softmax": (lambda x: tf.nn.softmax(x, 0), X),
    "centred": (lambda x: x - tf.reduce_mean(x, 0), X),
    "batch normalisation in training": (batch_norm, IMAGE),
    "cumsum": (lambda x: tf.cumsum(x, 0), X),
    "sort": (lambda x: tf.sort(x, 0), X),
    "arg max": (lambda x: x + tf.cast(tf.argmax(x, 0), tf.float32), X),
    "gram": (lambda x: x @ tf.transpose(x), X),
    "einsum with sums of rows": (lambda x: tf.einsum("nd,md->n", x, x), X),
    "some over rows": (lambda x: tf.cast(tf.reduce_any(x > 9.0, 0), tf.float32) + x, X),
    "all over rows": (lambda x: tf.where(tf.reduce_all(x > 0.0), x, -x), X),
    "roll by two axes": (lambda x: tf.roll(x, [1, 1], [1, 0]), X),
    "number of entries": (lambda x: x / tf.cast(tf.size(x), tf.float32), X),
    "positions": (lambda x: x + tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None], X),
    "reversal": (lambda x: x[::-1], X),
    "first row": (lambda x: x + x[:1], X),
    "last row": (lambda x: x + x[-1:], X),
    "column by count": (lambda x: x[:, tf.shape(x)[0] - 1], X),
    "constant for each row": (lambda x: x + tf.reshape(tf.range(3.0), [3, 1]), X),
    "select by position, square": (lambda x: raw.Select(condition=[True, False, True], x=x, y=-x), spec(3)),
    "tile and reshape": (lambda x: tf.reshape(tf.tile(x, [2, 1]), [-1, 8]), X),
    "tile by count": (lambda x: tf.tile(x, [1, tf.shape(x)[0]]), X),
    "transpose and reshape": (lambda x: tf.reshape(tf.transpose(x), [-1, 4]), X),
    "fours become fives": (lambda x: tf.reshape(x, [-1, 5]), Y),
    "reshape around the rows": (lambda x: tf.reshape(tf.transpose(x, [1, 0, 2]), [tf.shape(x)[0], 4, 2]), spec(4, 2)),
    "pad after": (lambda x: tf.pad(x, [[0, 1], [0, 0]]), X),
    "concatenated rows": (lambda x: tf.concat([x, x], 0), X),
    "concatenated with a constant": (lambda x: tf.concat([x, tf.ones([3, 4])], 1), X),
    "squeezed": (tf.squeeze, X),
    "gathered by value": (lambda x: tf.gather(x, tf.cast(x[:, 0], tf.int32) * 0), X),
    "places by position": (lambda x: tf.gather(x, [[0], [1], [2]], batch_dims=1, axis=1), X),
    "conv over rows": (lambda x: tf.nn.conv1d(x[None], tf.ones([3, 4, 4]), 1, "SAME")[0], X),
    "pool over rows": (lambda x: tf.nn.max_pool2d(x[None, :, :, None], [3, 1], 1, "SAME")[0, :, :, 0], X),
    "transposed conv over rows": (conv_over_rows, IMAGE),
    "resized rows": (lambda x: tf.image.resize(x[None, :, :, None], [3, 4])[0, :, :, 0], X),
    "bias for each row": (lambda x: tf.transpose(tf.nn.bias_add(tf.transpose(x), [1.0, 2.0, 3.0])), X),
    "band over rows": (lambda x: tf.linalg.band_part(x, -1, 0), X),
    "one hot of count": (lambda x: tf.one_hot(tf.argmax(x, 1), tf.shape(x)[0]), X),
    "broadcast more": (lambda x: tf.reshape(tf.broadcast_to(x, [2, tf.shape(x)[0], 4]), [-1, 4])[: tf.shape(x)[0]], X),
    "random": (lambda x: x + tf.random.uniform(tf.shape(x)), X),
    "cond": (lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x, lambda: -x), X),
    "branch that mixes": (lambda x: tf.cond(tf.constant(1.0) > 0.5, lambda: tf.reverse(x, [0]), lambda: x), X),
    "while by rows": (looped_by_rows, X),
    "while that mixes late": (mixed_late, X),
    "list item by count": (lambda x: columns(x).read(tf.shape(x)[0] - 1), X),
    "constant list item": (lambda x: tf.transpose(columns(x).write(1, [1.0, 2.0, 3.0]).stack()), X),
    "assertion on some": (lambda x: guarded(x, tf.reduce_any(x > 0.0)), X),
    "assertion in a branch": (guarded_other_branch, X),
    "counter": (lambda x: x + count.assign_add(1.0), X),
    "write by control input": (ordered_write, X),
    "examples of varying length": (parsed_ragged, S),
    "split by count": (lambda x: x + tf.split(tf.range(9.0)[:, None], tf.stack([tf.shape(x)[0], -1]))[0], X),
    "list of as many items": (lambda x: tf.TensorArray(tf.float32, tf.shape(x)[0]).write(0, x).stack()[0], X),
    "list item never set, square": (lambda x: 1.0 + never_set(x, tf.fill([2], tf.shape(x)[0])), X),
    "list item never set, of one axis": (lambda x: never_set(x, [2]), spec()),
    "product that keeps its rank": (kept_rank, spec()),
    "sizes gathered in batches": (batches_of_sizes, X),
    "sizes sliced by masks of no axis": (masks_of_no_axis, X),
    "transposed conv of two sizes": (conv_of_two_sizes, IMAGE),
    "product that wraps": (wrapped, X),
    "table with a default for each key": (
        lambda t: raw.LookupTableFindV2(table_handle=table.resource_handle, keys=t, default_value=t),
        S,
    ),
    "product of sizes that wraps": (wrapped_of_sizes, Y),
    "variable gathered in a batch": (gathered_in_a_batch, spec(4, 2)),
    "list of no round, stacked in a square": (lambda x: list_of_no_round(x, stacked=tf.fill([2], tf.shape(x)[0])), X),
    "list of no round, of squares": (lambda x: list_of_no_round(x, reserved=tf.fill([2], tf.shape(x)[0])), X),
    "list reserved for two rows": (lambda x: two_listed(x, reserved=[2, 4]), X),
    "list made of two rows": (lambda x: two_listed(x, made=[2, 4]), X),
    "list stacked for two rows": (lambda x: two_listed(x, stacked=[2, 4]), X),
    "list item of its own shape": (constant_listed, X),
    "random in a case": (drawn_in_a_case, X),
    "size from a table": (looked_up_size, X),
    "names of examples": (named_examples, S),
}

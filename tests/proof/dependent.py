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


def looped_by_count(x):
    return tf.while_loop(lambda i, y: i < tf.shape(x)[0], lambda i, y: (i + 1, y * 2.0), (0, x))[1]


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


def batch_norm(x):
    ones = tf.ones([2])
    return raw.FusedBatchNormV3(x=x, scale=ones, offset=ones, mean=ones[:0], variance=ones[:0], is_training=True).y


def conv_over_rows(x):
    x = tf.transpose(x, [1, 0, 2, 3])
    return tf.transpose(tf.nn.conv2d_transpose(x, tf.ones([2, 2, 2, 2]), tf.shape(x), 1), [1, 0, 2, 3])


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


batch_of_one = tf.Variable(tf.reshape(tf.range(10.0), [1, 5, 2]))
pairs = tf.lookup.KeyValueTensorInitializer(tf.constant([4], tf.int64), tf.constant([8], tf.int64))
sizes_table = tf.lookup.StaticHashTable(pairs, 0)
table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(tf.constant(["a"]), tf.constant([b"b"])), "")


DEPENDENT = {
    "softmax": (lambda x: tf.nn.softmax(x, 0), X),
    "centred": (lambda x: x - tf.reduce_mean(x, 0), X),
    "batch normalisation in training": (batch_norm, IMAGE),
    "cumsum": (lambda x: tf.cumsum(x, 0), X),
    "cumsum, negative axis": (lambda x: tf.cumsum(x, -2), X),
    "sort": (lambda x: tf.sort(x, 0), X),
    "arg max": (lambda x: x + tf.cast(tf.argmax(x, 0), tf.float32), X),
    "top k by shape": (lambda x: tf.nn.top_k(x, tf.shape(x)[0]).values, X),
    "gram": (lambda x: x @ tf.transpose(x), X),
    "gram by einsum": (lambda x: tf.einsum("id,jd->ij", x, x), X),
    "einsum over rows": (lambda x: tf.einsum("nd,ne->de", x, x), X),
    "einsum with sums of rows": (lambda x: tf.einsum("nd,md->n", x, x), X),
    "mixing product": (lambda x: tf.matmul(tf.ones([3, 3]), x), X),
    "distances of rows": (lambda x: tf.reduce_sum(x[:, None] - x[None], -1), X),
    "minus the maximum": (lambda x: tf.exp(x - tf.reduce_max(x)), X),
    "some over rows": (lambda x: tf.cast(tf.reduce_any(x > 9.0, 0), tf.float32) + x, X),
    "all over rows": (lambda x: tf.where(tf.reduce_all(x > 0.0), x, -x), X),
    "roll by two axes": (lambda x: tf.roll(x, [1, 1], [1, 0]), X),
    "number of entries": (lambda x: x / tf.cast(tf.size(x), tf.float32), X),
    "positions": (lambda x: x + tf.cast(tf.range(tf.shape(x)[0]), tf.float32)[:, None], X),
    "rows made by shape math": (lambda x: x + tf.ones([4]) * tf.cast(tf.shape(x)[0] * 2 - 1, tf.float32), X),
    "reversal": (lambda x: x[::-1], X),
    "reversal by op": (lambda x: tf.reverse(x, [0]), X),
    "first row": (lambda x: x + x[:1], X),
    "first row, dropped": (lambda x: x + x[0], X),
    "last row": (lambda x: x + x[-1:], X),
    "slice": (lambda x: tf.slice(x, [0, 0], [1, 4]) + x, X),
    "inner slice by count": (lambda x: tf.reduce_sum(x[:, : tf.shape(x)[0]], 1), X),
    "column by count": (lambda x: x[:, tf.shape(x)[0] - 1], X),
    "vector among rows": (lambda x: x + x[:, 0], Y),
    "constant for each row": (lambda x: x + tf.reshape(tf.range(3.0), [3, 1]), X),
    "select by position, square": (lambda x: raw.Select(condition=[True, False, True], x=x, y=-x), spec(3)),
    "tile and reshape": (lambda x: tf.reshape(tf.tile(x, [2, 1]), [-1, 8]), X),
    "tile by count": (lambda x: tf.tile(x, [1, tf.shape(x)[0]]), X),
    "transpose and reshape": (lambda x: tf.reshape(tf.transpose(x), [-1, 4]), X),
    "fours become fives": (lambda x: tf.reshape(x, [-1, 5]), Y),
    "halves": (lambda x: tf.reshape(x, [2, -1]), X),
    "reshape around the rows": (lambda x: tf.reshape(tf.transpose(x, [1, 0, 2]), [tf.shape(x)[0], 4, 2]), spec(4, 2)),
    "pad": (lambda x: tf.pad(x, [[1, 0], [0, 0]])[:-1], X),
    "pad after": (lambda x: tf.pad(x, [[0, 1], [0, 0]]), X),
    "pad by count": (lambda x: tf.reduce_mean(tf.pad(x, [[0, 0], [0, tf.shape(x)[0]]]), 1), X),
    "concatenated rows": (lambda x: tf.concat([x, x], 0), X),
    "concatenated with a constant": (lambda x: tf.concat([x, tf.ones([3, 4])], 1), X),
    "split": (lambda x: tf.concat(tf.split(x, [1, 2], 0)[::-1], 0), X),
    "split in halves": (lambda x: tf.concat(tf.split(x, 2, 0)[::-1], 0), X),
    "squeezed": (tf.squeeze, X),
    "gathered by constants": (lambda x: tf.gather(x, [0, 0]), X),
    "gathered by value": (lambda x: tf.gather(x, tf.cast(x[:, 0], tf.int32) * 0), X),
    "constants by position": (lambda x: tf.gather(tf.ones([3, 4]), tf.cast(x, tf.int32) * 0, batch_dims=1), X),
    "places by position": (lambda x: tf.gather(x, [[0], [1], [2]], batch_dims=1, axis=1), X),
    "conv over rows": (lambda x: tf.nn.conv1d(x[None], tf.ones([3, 4, 4]), 1, "SAME")[0], X),
    "pool over rows": (lambda x: tf.nn.max_pool2d(x[None, :, :, None], [3, 1], 1, "SAME")[0, :, :, 0], X),
    "transposed conv over rows": (conv_over_rows, IMAGE),
    "resized rows": (lambda x: tf.image.resize(x[None, :, :, None], [3, 4])[0, :, :, 0], X),
    "resized by count": (lambda x: tf.image.resize(x, [tf.shape(x)[0], 2]), IMAGE),
    "bias for each row": (lambda x: tf.transpose(tf.nn.bias_add(tf.transpose(x), [1.0, 2.0, 3.0])), X),
    "band over rows": (lambda x: tf.linalg.band_part(x, -1, 0), X),
    "one hot over rows": (lambda x: tf.reduce_sum(tf.one_hot(tf.argmax(x, 1), 4, axis=0), 1) + x, X),
    "one hot of count": (lambda x: tf.one_hot(tf.argmax(x, 1), tf.shape(x)[0]), X),
    "broadcast more": (lambda x: tf.reshape(tf.broadcast_to(x, [2, tf.shape(x)[0], 4]), [-1, 4])[: tf.shape(x)[0]], X),
    "random": (lambda x: x + tf.random.uniform(tf.shape(x)), X),
    "non-zero entries": (lambda x: tf.boolean_mask(x, x[:, 0] > 0.0), X),
    "cond": (lambda x: tf.cond(tf.reduce_sum(x) > 0.0, lambda: x, lambda: -x), X),
    "cond by count": (lambda x: tf.cond(tf.shape(x)[0] > 2, lambda: x, lambda: -x), X),
    "branch that mixes": (lambda x: tf.cond(tf.constant(1.0) > 0.5, lambda: tf.reverse(x, [0]), lambda: x), X),
    "while by rows": (looped_by_rows, X),
    "while by count": (looped_by_count, X),
    "while that mixes late": (mixed_late, X),
    "list of rows": (lambda x: x + tf.TensorArray(tf.float32, tf.shape(x)[0]).unstack(x).read(0), X),
    "list item by count": (lambda x: columns(x).read(tf.shape(x)[0] - 1), X),
    "constant list item": (lambda x: tf.transpose(columns(x).write(1, [1.0, 2.0, 3.0]).stack()), X),
    "assertion on some": (lambda x: guarded(x, tf.reduce_any(x > 0.0)), X),
    "assertion on the count": (lambda x: guarded(x, tf.shape(x)[0] > 2), X),
    "assertion in a branch": (guarded_other_branch, X),
    "counter": (lambda x: x + count.assign_add(1.0), X),
    "write by control input": (ordered_write, X),
    "ragged to dense": (lambda t: tf.strings.split(t, "|").to_tensor(""), S),
    "strings joined": (lambda t: tf.strings.join([t, tf.strings.reduce_join(t)]), S),
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

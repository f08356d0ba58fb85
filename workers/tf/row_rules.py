"""What each op of TensorFlow makes of rows: the table of rules by which `workers.tf.rows` proves a graph.

A rule raises `Stop` where it cannot tell, and an op without a rule stops the proof as well: what is missing here costs
a batch, never a right answer. All jobs of a batch have equal inner shapes, so a size that comes from these is one
number for all, like a constant. Only N, the number of rows, is another in a batch than in a job alone.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from workers.tf.library import tf
from workers.tf.row_values import Every, Op, Plan, Reserved, Stop, Tensor, Unknown, Value, broadcast, contracted, shaped
from workers.tf.sizes import MOST_ENTRIES, ODD, counted, fresh, has_rows, is_known, over, plus, product, times

_INTS = (tf.int32.as_datatype_enum, tf.int64.as_datatype_enum)
_HANDLES = (tf.resource.as_datatype_enum, tf.variant.as_datatype_enum)

RULES: dict[str, Callable[[Op], Any]] = {}


def _rule(types: str) -> Callable[[Any], Any]:
    return lambda made: RULES.update(dict.fromkeys(types.split(), made))


_rule(
    """Abs Acos Acosh Add AddN AddV2 AsString Asin Asinh Atan Atan2 Atanh BitwiseAnd BitwiseOr BitwiseXor Bucketize Cast
    Ceil ClipByValue Complex ComplexAbs Conj Cos Cosh DecodeBase64 Digamma Div DivNoNan Elu EncodeBase64
    Equal Erf Erfc Erfinv Exp Expm1 FakeQuantWithMinMaxArgs FakeQuantWithMinMaxVars FakeQuantWithMinMaxVarsPerChannel
    Floor FloorDiv FloorMod Greater GreaterEqual Imag Inv Invert IsFinite IsInf IsNan LeakyRelu LeftShift Less LessEqual
    Lgamma Log Log1p LogicalAnd LogicalNot LogicalOr Maximum Minimum Mod Mul MulNoNan
    Ndtri Neg NextAfter NotEqual OnesLike Pow PreventGradient Real RealDiv Reciprocal RegexReplace Relu Relu6 RightShift
    Rint Round Rsqrt SelectV2 Selu Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Square SquaredDifference
    StaticRegexFullMatch StaticRegexReplace StringJoin StringLength StringLower StringStrip StringToHashBucket
    StringToHashBucketFast StringToHashBucketStrong StringToNumber StringUpper Sub Substr Tan Tanh TruncateDiv
    TruncateMod UnicodeTranscode Xdivy Xlog1py Xlogy ZerosLike"""
)(lambda op: broadcast(op, op.tensors()))
_rule("Select")(lambda op: broadcast(op, [_alike(op.tensors()), *op.tensors()]))
_rule("Identity PlaceholderWithDefault ReadVariableOp Snapshot StopGradient")(lambda op: op.inputs[:1])
_rule("Softmax LogSoftmax RGBToHSV HSVToRGB")(lambda op: op.alone().along([-1]))
_rule("Cumsum Cumprod ReverseV2")(lambda op: op.alone().along(op.ints(1)))
_rule("Roll")(lambda op: op.alone().along(op.ints(2)))
_rule("MatrixBandPart")(lambda op: op.alone().along([-2, -1]))
_rule("BiasAdd")(lambda op: op.alone().along([_channels(op)]))
_rule("TopKV2")(lambda op: [op.alone().along([-1], op.sizes(1))] * 2)
_rule("ResizeArea ResizeBicubic ResizeBilinear ResizeNearestNeighbor")(lambda op: op.alone().along([1, 2], op.sizes(1)))
_rule("DepthToSpace SpaceToDepth")(lambda op: op.tensor(0).along([1, 2, 3], [fresh() for _ in range(3)]))
_rule("ArgMax ArgMin")(lambda op: op.alone().without(op.ints(1)))
_rule("Unpack")(lambda op: [op.tensor(0).without([op.attr("axis").i])] * op.outputs)
_rule("Squeeze")(lambda op: op.tensor(0).without(op.attr("squeeze_dims").list.i or [None]))
_rule("ExpandDims")(lambda op: op.tensor(0).with_axis(op.ints(1)[0], 1))
_rule("OneHot")(lambda op: op.alone().with_axis(op.attr("axis").i, op.sizes(1)[0]))
_rule("Pack")(lambda op: _alike(op.tensors()).with_axis(op.attr("axis").i, len(op.inputs)))
_rule("Transpose")(lambda op: op.tensor(0).planned([(at, None) for at in op.ints(1)]))
_rule("Shape ShapeN VariableShape")(lambda op: [_shape(op.tensor(place, True)) for place in range(op.outputs)])
_rule("Size")(lambda op: Tensor((), (product(op.tensor(0, True).shape),)))
_rule("Rank")(lambda op: Tensor((), (len(op.tensor(0, True).shape),)))
_rule("HashTable HashTableV2 MutableHashTable MutableHashTableV2")(lambda _: Tensor(()))
_rule("VariableV2 VarHandleOp")(lambda op: Tensor(_known(op.attr("shape").shape)))
_rule("Variable")(lambda op: Tensor(_known(op.attr("shape").shape) or None))  # [] stands for any shape
_rule("Placeholder")(lambda _: Tensor(None))  # not fed: it fails, or its owner feeds it the same in each run


def _channels(op: Op) -> int:
    return {b"NHWC": -1, b"NDHWC": -1, b"NCHW": 1, b"NCDHW": 1}[op.attr("data_format").s]


def _alike(tensors: Sequence[Tensor]) -> Tensor:
    """The first, if all have as many rows at the same axis, or all none."""
    if len({(len(each.shape), each.axis, each.axis is not None and each.shape[each.axis]) for each in tensors}) > 1:
        raise Stop("joins the rows with something that has none, or other rows")
    return tensors[0]


def _shape(tensor: Tensor) -> Tensor:
    return Tensor((fresh(),)) if tensor.dims is None else Tensor((len(tensor.shape),), tensor.shape)


def _known(shape: Any) -> tuple[int, ...] | None:
    sizes = tuple(dim.size for dim in shape.dim)
    return None if shape.unknown_rank or min(sizes, default=0) < 0 else sizes


@_rule("Const")
def _const(op: Op) -> Tensor:
    proto = op.attr("value").tensor
    dims = tuple(dim.size for dim in proto.tensor_shape.dim)
    if proto.dtype not in _INTS or product(dims) > MOST_ENTRIES:
        return Tensor(dims)
    numbers = tuple(map(int, tf.make_ndarray(proto).flat))
    return Tensor(dims, numbers if is_known(*numbers) else None)


@_rule("Sum Mean Prod Max Min Any All EuclideanNorm")
def _reduction(op: Op) -> Value:
    tensor, axes = op.alone(), op.ints(1)
    if op.type == "All" and tensor.axis is not None and tensor.plan(axes)[tensor.axis][1]:
        return Every(f"All {op.node.name!r} works over the rows (axis {tensor.axis})")
    return tensor.along(axes, [1] * len(axes)) if op.attr("keep_dims").b else tensor.without(axes)


@_rule("MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3")
def _matrix_product(op: Op) -> Tensor:
    names = ("transpose_a", "transpose_b") if op.type == "MatMul" else ("adj_x", "adj_y")
    operands: list[tuple[list[Any], Tensor]] = []
    for tensor, name, labels in zip(op.tensors(), names, ("ik", "kj"), strict=True):
        batch = range(len(tensor.shape) - 2)[::-1]
        operands.append(([*batch, *(labels[::-1] if op.attr(name).b else labels)], tensor))
    return contracted(op, operands, [*max((labels[:-2] for labels, _ in operands), key=len), "i", "j"])


@_rule("Einsum")
def _einsum(op: Op) -> Tensor:
    left, _, right = op.attr("equation").s.decode().replace(" ", "").partition("->")

    def labels(text: str, dots: int) -> list[Any]:
        before, found, after = text.partition("...")
        return [*before, *(range(dots)[::-1] if found else ()), *after]

    pairs = [*zip(left.split(","), op.tensors(), strict=True)]
    dots = [len(tensor.shape) - len(text.replace("...", "")) for text, tensor in pairs]
    operands = [(labels(text, many), tensor) for (text, tensor), many in zip(pairs, dots, strict=True)]
    return contracted(op, operands, labels(right, max(dots)))


@_rule("Conv2D Conv3D DepthwiseConv2dNative MaxPool MaxPool3D AvgPool AvgPool3D")
def _windows(op: Op) -> Tensor:
    tensor, rank = op.alone(), len(op.tensor(0).shape)
    channels = _channels(op) % rank
    sizes, spatial = [*tensor.shape], [at for at in range(1, rank) if at != channels]
    kernel, rates, strides = [1] * rank, [1] * rank, op.attr("strides").list.i
    if "Conv" in op.type:
        *widths, inner, outer = op.tensor(1).shape
        sizes[channels] = times(inner, outer) if op.type == "DepthwiseConv2dNative" else outer
        rates = [*op.attr("dilations").list.i]
        for at, width in zip(spatial, widths, strict=True):
            kernel[at] = width
    else:
        kernel = [*op.attr("ksize").list.i]
    padding = op.attr("padding").s
    pads = [*op.attr("explicit_paddings").list.i] if padding == b"EXPLICIT" else [0] * 2 * rank
    if any((kernel[at], strides[at], rates[at], *pads[2 * at :][:2]) != (1, 1, 1, 0, 0) for at in (0, channels)):
        raise Stop("has windows over rows or channels")
    for at in spatial:
        reach = (kernel[at] - 1) * rates[at] * (padding != b"SAME") - sum(pads[2 * at :][:2])
        if reach != 0 or strides[at] != 1:
            known = is_known(sizes[at], reach)
            sizes[at] = (sizes[at] - reach - 1) // strides[at] + 1 if known else fresh()
    return tensor.along(range(1, rank), sizes[1:])


@_rule("Conv2DBackpropInput Conv3DBackpropInputV2 DepthwiseConv2dNativeBackpropInput")
def _transposed_convolution(op: Op) -> Tensor:
    rows = op.tensor(2)
    if len(op.sizes(0)) != len(rows.shape):
        raise Stop("is given a part of the shape")
    if not op.tensor(1).is_free or rows.axis != 0 or op.sizes(0)[0] != rows.shape[0]:
        raise Stop("has another number of rows than its input")
    return shaped(op.sizes(0))


@_rule("FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3")
def _batch_norm(op: Op) -> Sequence[Value]:
    """Statistics of a batch are those of a channel. Layer normalisations make each row one."""
    tensor, at = op.tensor(0), _channels(op)
    if not op.attr("is_training").b:
        op.alone().along([at])
    elif tensor.axis != at or any(each.shape != (tensor.shape[at],) for each in op.tensors(3)[1:]):
        raise Stop("normalises over the rows, as in training")
    return [tensor, *[Unknown(f"{op.type} {op.node.name!r} gives statistics")] * (op.outputs - 1)]


@_rule("Reshape")
def _reshape(op: Op) -> Tensor:
    """Entries stay in order, so rows stay whole if what comes before their axis stays as it is."""
    tensor, sizes = op.tensor(0), op.sizes(1)
    total = fresh() if tensor.dims is None else product(tensor.dims)
    if -1 in sizes:
        sizes[sizes.index(-1)] = over(total, product(size for size in sizes if size != -1))
    result = shaped(sizes)
    if tensor.dims is None and result.is_free:
        return shaped(map(counted, sizes))
    before = product(tensor.shape[: tensor.axis])
    if total % ODD == 0 or product(sizes) != total or product(sizes[: result.axis]) != before:
        raise Stop("may put entries of several rows into one")
    return result


@_rule("ConcatV2")
def _concat(op: Op) -> Tensor:
    tensors, axes = op.tensors(-1), op.ints(len(op.inputs) - 1)
    return _alike(tensors).along(axes, [reduce(plus, [tensor.shape[axes[0]] for tensor in tensors])])


@_rule("Split SplitV")
def _split(op: Op) -> Sequence[Value]:
    data, axes = (1, op.ints(0)) if op.type == "Split" else (0, op.ints(2))
    tensor = op.tensor(data)
    sizes = [over(tensor.shape[axes[0]], op.outputs)] * op.outputs if data else map(counted, op.sizes(1))
    return [tensor.along(axes, [size]) for size in sizes]


@_rule("StridedSlice")
def _strided_slice(op: Op) -> Tensor:
    tensor, at, rank = op.tensor(0), 0, len(op.tensor(0).shape)
    plan: Plan = []
    names = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    parts = [*zip(op.sizes(1), op.sizes(2), op.sizes(3), strict=True)]
    masks = [[op.attr(name).i >> place & 1 for name in names] for place in range(len(parts))]
    for place, (begin, end, step) in enumerate(parts):
        starts, ends, is_ellipsis, is_new, drops = masks[place]
        if is_ellipsis:
            after = rank - sum(not later[3] for later in masks[place + 1 :])
            plan += tensor.plan()[at:after]
            at = max(at, after)
        elif is_new:
            plan.append((None, 1))
        else:
            if not drops:
                plan.append((at, _part(tensor.shape[at], None if starts else begin, None if ends else end, step)))
            elif has_rows(begin):
                raise Stop("takes a place that depends on the number of rows")
            at += 1
    return tensor.planned([*plan, *tensor.plan()[at:]])


def _part(size: int, begin: int | None, end: int | None, step: int) -> int | None:
    """The size of a slice; None: it is whole."""
    if begin in (None, 0) and end in (None, size) and step == 1:
        return None
    if any(map(has_rows, (begin or 0, end or 0, step))):
        raise Stop("takes places that depend on the number of rows")
    return len(range(size)[begin:end:step]) if is_known(size, begin or 0, end or 0, step) else fresh()


@_rule("Slice")
def _slice(op: Op) -> Tensor:
    tensor = op.tensor(0)
    plan: Plan = []
    for at, (begin, count) in enumerate(zip(op.sizes(1), op.sizes(2), strict=True)):
        whole = count in (-1, tensor.shape[at])
        plan.append((at, _part(tensor.shape[at], begin, None if whole else plus(begin, counted(count)), 1)))
    return tensor.planned(plan)


@_rule("Pad PadV2 MirrorPad")
def _pad(op: Op) -> Tensor:
    tensor, pads = op.alone(), op.entries(1)
    touched = [at for at, (before, after) in enumerate(pads) if not before == after == 0]
    return tensor.along(touched, [reduce(plus, pads[at], tensor.shape[at]) for at in touched])


@_rule("Tile")
def _tile(op: Op) -> Tensor:
    """A constant repeated N times is the same for each row."""
    tensor, multiples = op.tensor(0), op.sizes(1)
    sizes = [*map(times, tensor.shape, multiples)]
    touched = [at for at, by in enumerate(multiples) if by != 1]
    return shaped(sizes) if tensor.is_free else tensor.along(touched, [sizes[at] for at in touched])


@_rule("BroadcastTo Fill")
def _filled(op: Op) -> Tensor:
    target = shaped(op.sizes(op.type == "BroadcastTo"))
    broadcast(op, (op.tensor(op.type == "Fill"), target))
    return target


@_rule("GatherV2 ResourceGather")
def _gather(op: Op) -> Tensor:
    source, places, batch = op.tensor(0), op.tensor(1), op.attr("batch_dims").i
    at = (op.ints(2)[0] if op.type == "GatherV2" else batch) % len(source.shape)
    if at == source.axis or batch < 0 or source.shape[:batch] != places.shape[:batch]:
        raise Stop("gives a row what it finds in others, or in a constant for each row")
    return shaped([*source.shape[:at], *places.shape[batch:], *source.shape[at + 1 :]])


@_rule("Range")
def _range(op: Op) -> Tensor:
    op.alone()
    (begin,), (end,), (step,) = (op.sizes(place) for place in range(3))
    if not is_known(begin, end, step):
        return shaped([end if (begin, step) == (0, 1) else fresh()])
    numbers = range(begin, end, step)
    return Tensor((len(numbers),), tuple(numbers) if len(numbers) <= MOST_ENTRIES else None)


@_rule("LookupTableFind LookupTableFindV2")
def _found(op: Op) -> Tensor:
    if op.tensor(2).shape:
        raise Stop("has several defaults, of which tables that do not change take the first")
    return shaped(op.tensor(1).shape)


@_rule("ParseExample ParseExampleV2")
def _parse_example(op: Op) -> Sequence[Value]:
    """Dense features of a fixed shape. Others are padded to the longest row, or sparse."""
    (rows,) = op.alone().shape
    if op.tensor(1).shape != (0,):
        raise Stop("has a name for each row")
    results: list[Value] = [Unknown(f"{op.type} {op.node.name!r} gives features of varying length")] * op.outputs
    for at, shape in enumerate(op.attr("dense_shapes").list.shape, 3 * len(op.attr("sparse_types").list.type)):
        sizes = _known(shape)
        results[at] = results[at] if sizes is None else shaped([rows, *sizes])
    return results


def _reserved(op: Op, shape: int = 0) -> Reserved:
    op.tensor(1, shape != 0)  # how many: not as many as there are rows
    sizes = tuple(op.sizes(shape)) if op.tensor(shape, True).shape else None
    return Reserved(f"{op.type} {op.node.name!r} makes a list in which nothing was set", sizes)


_rule("TensorListReserve")(_reserved)


@_rule("TensorListFromTensor TensorListStack")
def _list(op: Op) -> Tensor:
    _reserved(op, 1).listed(op.tensor(0).without([0]))
    return op.tensor(0).along([0])


@_rule("TensorListGetItem TensorListSetItem")
def _list_item(op: Op) -> Tensor:
    if not op.tensor(1, True).is_free:
        raise Stop("takes or sets at places that depend on the rows")
    if op.type == "TensorListGetItem":
        item = op.tensor(0).without([0])
        _reserved(op, 2).listed(item)
        return item
    found = op.inputs[0]
    made = found.listed(op.tensor(2)) if isinstance(found, Reserved) else op.tensor(2).with_axis(0, fresh())
    if op.attr("resize_if_index_out_of_bounds").b or (isinstance(found, Tensor) and found.shape[1:] != made.shape[1:]):
        raise Stop("makes its list longer, or puts unlike tensors into it")
    return found if isinstance(found, Tensor) else made


# What ops make of sizes, as arrays.
_FOLDS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("Add", "AddV2"), lambda _, *arrays: np.frompyfunc(plus, 2, 1)(*arrays)),
    "Sub": lambda _, one, other: np.frompyfunc(plus, 2, 1)(one, -other),
    "Mul": lambda _, *arrays: np.frompyfunc(times, 2, 1)(*arrays),
    "Pack": lambda op, *arrays: np.stack(arrays, op.attr("axis").i),
    "ConcatV2": lambda op, *arrays: np.concatenate(arrays[:-1], op.ints(len(arrays) - 1)[0]),
    "Cast": lambda op, array: array if op.attr("DstT").type in _INTS else None,
    "Prod": lambda op, array, _: (
        product(array) if array.ndim == 1 and op.ints(1) in ([0], [-1]) and not op.attr("keep_dims").b else None
    ),
    "Unpack": lambda op, array: [*np.moveaxis(array, op.attr("axis").i, 0)],
    "GatherV2": lambda op, array, places, _: (
        None if op.attr("batch_dims").i else np.take(array, np.reshape(op.ints(1), places.shape), op.ints(2)[0])
    ),
    "Reshape": lambda op, array, _: np.reshape(array, op.ints(1)),
    "StridedSlice": lambda op, array, *_: _slice_of_sizes(op, array),
}


def _slice_of_sizes(op: Op, array: Any) -> Any:
    (begin,), (end,), (step,) = (op.ints(place) for place in (1, 2, 3))
    if op.attr("ellipsis_mask").i & 1 or op.attr("new_axis_mask").i & 1:
        return None
    if op.attr("shrink_axis_mask").i & 1:
        return array[begin]
    return array[None if op.attr("begin_mask").i & 1 else begin : None if op.attr("end_mask").i & 1 else end : step]


def _folded(op: Op) -> list[Tensor]:
    """Empty if it has inputs of another kind."""
    data = op.inputs[slice(*_DATA.get(op.type, (1,)))]
    if op.type not in _FOLDS or not any(isinstance(each, Tensor) and each.entries is not None for each in data):
        return []
    try:
        found = _FOLDS[op.type](op, *[op.entries(place) for place in range(len(op.inputs))])
    except (Stop, ValueError, IndexError):
        return []
    arrays = [np.array(each, object) for each in (found if isinstance(found, list) else [found])]
    if found is None or any(array.size > MOST_ENTRIES for array in arrays):
        return []
    return [Tensor(array.shape, tuple(array.flat)) for array in arrays]


# Which inputs hold what is computed, where it is not the first alone.
_DATA = {**dict.fromkeys(("Add", "AddV2", "Sub", "Mul", "Pack"), (None,)), "ConcatV2": (-1,)}


def applied(op: Op) -> Sequence[Value]:
    """What an op makes of inputs that are known. Raises `Stop`, or another error for what is out of the ordinary."""
    if op.type not in RULES:
        raise Stop("has no rule")
    if op.type != "Identity" and any(attr.type in _HANDLES or attr.placeholder for attr in op.node.attr.values()):
        raise Stop("takes variables or lists as such, or has attributes that each call of its function sets")
    found = _folded(op) or RULES[op.type](op)
    results = [found] if isinstance(found, Value) else found
    takes_rows = any(isinstance(each, Tensor) and each.axis is not None for each in op.inputs)
    loses_rows = any(isinstance(each, Tensor) and each.axis is None for each in results)
    if takes_rows and loses_rows and op.type not in ("Shape", "ShapeN", "Size", "Rank"):
        raise Stop("works over the rows")
    return results

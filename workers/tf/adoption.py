"""Whether a graph may be fed memory that the client can still write.

TensorFlow computes in the very buffer that it is fed. Most kernels read each value once and compute with it: a value
that changes meanwhile is a wrong value, and its client's own. Others compare values and then count or index by them. If
values change in between, a sort runs past its end, or never ends, and `Where` writes more rows than it has counted.

So a graph is fed a client's memory only if each op that it may run is known to be of the first kind; all else, ops
of others among it, gets a copy. It does not matter where in the graph an op is: TensorFlow rewrites graphs.
"""

from collections.abc import Iterable

__all__ = ["HARMLESS", "bears_change"]

_HARMLESS = (
    # Give on what they are given; what they call is looked at by itself.
    "Const Placeholder PlaceholderWithDefault NoOp Identity IdentityN Snapshot StopGradient PreventGradient",
    "EnsureShape CheckNumerics VarHandleOp ReadVariableOp Variable VariableV2 PartitionedCall StatefulPartitionedCall",
    "If StatelessIf Case StatelessCase While StatelessWhile Switch Merge Enter Exit NextIteration LoopCond",
    # Shapes, and what is moved by shapes.
    "Shape ShapeN Size Rank Reshape Squeeze ExpandDims Transpose ConjugateTranspose Pack Unpack Concat ConcatV2 Split",
    "SplitV Slice StridedSlice Tile Fill ZerosLike OnesLike BroadcastTo BroadcastArgs Pad PadV2 MirrorPad ReverseV2",
    "SpaceToBatch SpaceToBatchND BatchToSpace BatchToSpaceND SpaceToDepth DepthToSpace",
    # Element by element.
    "Cast Abs Neg Sign Inv Reciprocal Square Sqrt Rsqrt Exp Expm1 Log Log1p Sin Cos Tan Asin Acos Atan Atan2 Sinh Cosh",
    "Tanh Asinh Acosh Atanh Erf Erfc Lgamma Digamma Floor Ceil Round Rint IsNan IsInf IsFinite Add AddV2 AddN Sub Mul",
    "MulNoNan Div DivNoNan RealDiv FloorDiv TruncateDiv FloorMod Mod TruncateMod Pow Xdivy Xlogy Xlog1py",
    "SquaredDifference Maximum Minimum ClipByValue Real Imag Conj Complex ComplexAbs Angle Equal NotEqual",
    "ApproximateEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot Select SelectV2",
    # Sums and products of many, and the largest of many.
    "Sum Mean Prod Max Min All Any EuclideanNorm ArgMax ArgMin Cumsum Cumprod CumulativeLogsumexp MatMul BatchMatMul",
    "BatchMatMulV2 BatchMatMulV3 Einsum Conv2D Conv3D DepthwiseConv2dNative Conv2DBackpropInput Conv3DBackpropInputV2",
    "DepthwiseConv2dNativeBackpropInput MaxPool MaxPoolV2 MaxPool3D AvgPool AvgPool3D ResizeBilinear ResizeBicubic",
    "ResizeNearestNeighbor ResizeArea Sigmoid Relu Relu6 LeakyRelu Elu Selu Softplus Softsign Softmax LogSoftmax",
    "BiasAdd BiasAddV1 L2Loss LRN FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 BatchNormWithGlobalNormalization",
)
HARMLESS = frozenset(" ".join(_HARMLESS).split())
"""Of each, what it reads and writes where follows from shapes, and from integers, which are always copied."""


def bears_change(ops: Iterable[str]) -> bool:
    """Whether a run of these ops is harmed by nothing but wrong values, if what it is fed changes meanwhile."""
    return HARMLESS.issuperset(ops)

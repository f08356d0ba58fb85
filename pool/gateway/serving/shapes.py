"""Values without the axis of one that their input declares: `1.0` for each row of a float32 [?, 1].

TensorFlow Serving feeds whatever shape it is sent, and its documentation does so: half_plus_two declares [?, 1], is
sent three numbers and gives three. Workers of the pool check shapes, so the axis is added here, and taken off the
answer.
"""

from collections.abc import Mapping

from pool.wire.records import SignatureInfo, Tensor
from pool.wire.tensors import Array

__all__ = ["lifted", "lowered"]


def lifted(inputs: Mapping[str, Array], signature: SignatureInfo) -> dict[str, Array]:
    """Those with an axis more that need it, over the same memory; what is not as `signature` declares stays so."""
    return {name: _with_axis(array, signature.inputs[name]) for name, array in inputs.items()}


def lowered(outputs: Mapping[str, Array], signature: SignatureInfo) -> dict[str, Array]:
    """Without the last axis of those that declare one of 1 there."""
    return {
        name: array[..., 0] if array.ndim > 1 and array.shape[-1] == 1 == _last(signature.outputs.get(name)) else array
        for name, array in outputs.items()
    }


def _with_axis(array: Array, spec: Tensor) -> Array:
    if spec.shape is None or len(spec.shape) != array.ndim + 1 or not array.ndim or spec.shape[-1] != 1:
        return array
    return array[..., None]


def _last(spec: Tensor | None) -> int | None:
    return spec.shape[-1] if spec is not None and spec.shape else None

"""A tensor as a client sends it: its header for the job's table, and its buffer."""

from pool.wire.calls import TensorHeader
from pool.wire.tensors import Array, dtype_name, tensor_bytes

__all__ = ["encode_tensor"]


def encode_tensor(name: str, array: Array, weak: bool = False) -> tuple[TensorHeader, bytes | memoryview]:
    return TensorHeader(name, dtype_name(array.dtype), array.shape, weak), tensor_bytes(array)

"""How many bytes an element takes on the wire, for those who do without numpy."""

from collections.abc import Mapping

__all__ = ["END_BYTES", "ITEM_BYTES", "STRING"]

STRING = "string"  # its elements have no size in common; see `pool.wire.tensors`
END_BYTES = 8  # of a string's end

ITEM_BYTES: Mapping[str, int] = {
    **dict.fromkeys(("bool", "int8", "uint8"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
    # Also those of less than 8 bits take a byte each: numpy packs no bits.
    **dict.fromkeys(("int2", "uint2", "int4", "uint4", "float4_e2m1fn"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e4m3b11fnuz", "float8_e5m2fnuz"), 1),
}
"""TensorFlow's name of a dtype → the bytes of an element."""

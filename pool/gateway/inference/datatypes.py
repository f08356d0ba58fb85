"""What the protocol calls a dtype."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from pool.wire.tensors import DTYPES, dtype_name

__all__ = ["BYTES", "DATATYPES", "NO_JSON", "config_name", "datatype", "shown"]

_NAMES: Mapping[str, str] = {
    "BOOL": "bool",
    **{f"UINT{bits}": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"INT{bits}": f"int{bits}" for bits in (8, 16, 32, 64)},
    **{f"FP{bits}": f"float{bits}" for bits in (16, 32, 64)},
    "BF16": "bfloat16",
    "BYTES": "string",
}
_OF = {name: datatype for datatype, name in _NAMES.items()}

DATATYPES: Mapping[str, np.dtype[Any]] = {datatype: DTYPES[name] for datatype, name in _NAMES.items()}
"""The protocol's name → numpy's dtype."""

BYTES = DATATYPES["BYTES"]

NO_JSON = frozenset(("FP16", "BF16"))
"""They are sent as binary data only."""


def datatype(dtype: np.dtype[Any]) -> str | None:
    """None for one that the protocol has no name for, such as complex64."""
    return _OF.get(dtype_name(dtype))


def shown(name: str) -> str:
    """Of TensorFlow's name. What the protocol has no name for is shown in capitals, and never sent."""
    return _OF.get(name) or name.upper()


def config_name(name: str) -> str:
    """The same as a model's configuration has it: TYPE_FP32, TYPE_STRING."""
    found = _OF.get(name, "INVALID")
    return "TYPE_STRING" if found == "BYTES" else f"TYPE_{found}"

"""A model's signatures as TensorFlow Serving prints them: a `GetModelMetadataResponse`, as protobuf has it in JSON."""

from typing import Any

from pool.gateway.catalogue import numbers
from pool.wire.records import Model, SignatureInfo, Tensor

__all__ = ["data_type", "metadata"]

_DATA_TYPES = {"float32": "DT_FLOAT", "float64": "DT_DOUBLE", "float16": "DT_HALF"}  # the others have their own name


def metadata(name: str, model: Model, version: int | str | None) -> dict[str, Any]:
    """`name` and `version`: what the client has asked for."""
    definitions = {key: _definition(signature) for key, signature in model.signatures.items()}
    number = version if isinstance(version, int) else max(numbers(model))
    return {
        "model_spec": {"name": name, "signature_name": "", "version": str(number)},
        "metadata": {"signature_def": {"signature_def": definitions}},
    }


def data_type(dtype: str) -> str:
    """TensorFlow's enumerator for a dtype that it calls so."""
    return _DATA_TYPES.get(dtype) or f"DT_{dtype.upper()}"


def _definition(signature: SignatureInfo) -> dict[str, Any]:
    return {
        "inputs": {name: _tensor(each) for name, each in signature.inputs.items()},
        "outputs": {name: _tensor(each) for name, each in signature.outputs.items()},
        "method_name": signature.method_name,
        "defaults": {},
    }


def _tensor(tensor: Tensor) -> dict[str, Any]:
    shape = tensor.shape or ()
    return {
        "dtype": data_type(tensor.dtype),
        "tensor_shape": {
            "dim": [{"size": str(axis), "name": ""} for axis in shape],
            "unknown_rank": tensor.shape is None,
        },
        "name": tensor.name,
    }

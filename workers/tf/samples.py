"""Recorded requests to warm a model up with, as TensorFlow Serving has them: a file of records, each a PredictionLog.

Of its messages only what is needed is described here; all else in them is skipped. The field numbers are those of
tensorflow_serving/apis: prediction_log.proto, predict.proto, model.proto.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from pool.wire.signatures import DEFAULT_SIGNATURE, Signature
from pool.wire.tensors import DTYPES, Array
from workers.signatures import shape_fits
from workers.tf.library import TensorProto, tf

__all__ = ["BadSample", "Sample", "read_samples"]

_MOST = 1000  # as TensorFlow Serving has it

_FIELD = descriptor_pb2.FieldDescriptorProto
# Each message's fields: number, name, type, label, the message's name where it is one.
_MESSAGES: Mapping[str, tuple[tuple[int, str, Any, Any, str], ...]] = {
    "PredictionLog": ((6, "predict_log", _FIELD.TYPE_MESSAGE, _FIELD.LABEL_OPTIONAL, "PredictLog"),),
    "PredictLog": ((1, "request", _FIELD.TYPE_MESSAGE, _FIELD.LABEL_OPTIONAL, "PredictRequest"),),
    "PredictRequest": (
        (1, "model_spec", _FIELD.TYPE_MESSAGE, _FIELD.LABEL_OPTIONAL, "ModelSpec"),
        (2, "inputs", _FIELD.TYPE_MESSAGE, _FIELD.LABEL_REPEATED, "Input"),
        (3, "output_filter", _FIELD.TYPE_STRING, _FIELD.LABEL_REPEATED, ""),
    ),
    "ModelSpec": ((3, "signature_name", _FIELD.TYPE_STRING, _FIELD.LABEL_OPTIONAL, ""),),
    # A map travels as its entries, and a message within a message as bytes: this one is TensorFlow's own to read.
    "Input": (
        (1, "key", _FIELD.TYPE_STRING, _FIELD.LABEL_OPTIONAL, ""),
        (2, "tensor", _FIELD.TYPE_BYTES, _FIELD.LABEL_OPTIONAL, ""),
    ),
}


class BadSample(Exception):
    """One line: what of a record cannot be used."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A request that fits its signature."""

    signature: str
    feeds: Mapping[str, Array]
    outputs: tuple[str, ...]


def read_samples(file: Path | None, signatures: Mapping[str, Signature]) -> Iterator[Sample | BadSample]:
    """One a record, the first thousand; none where there is no file.

    Ends with a `BadSample` where the file itself is broken. Never raises.
    """
    if file is None or not file.exists():
        return
    try:
        for record in islice(tf.compat.v1.io.tf_record_iterator(str(file)), _MOST):
            try:
                yield _sample(record, signatures)
            except BadSample as bad:
                yield bad
            except Exception as error:  # of bytes that anybody may have written protobuf and numpy raise what they like
                yield BadSample(f"{type(error).__name__}: {str(error).partition(chr(10))[0]:.200}")
    except tf.errors.OpError as error:
        yield BadSample(f"the rest of the file cannot be read: {str(error.message).partition(chr(10))[0]:.200}")


def _sample(record: bytes, signatures: Mapping[str, Signature]) -> Sample:
    log = _prediction_log().FromString(record)
    if not log.HasField("predict_log"):
        raise BadSample("it is not a PredictLog, the only kind that can run")
    request = log.predict_log.request
    name = request.model_spec.signature_name or DEFAULT_SIGNATURE
    signature = signatures.get(name)
    if signature is None:
        raise BadSample(f"the model has no signature {name!r:.80}")
    feeds = {entry.key: tf.make_ndarray(TensorProto.FromString(entry.tensor)) for entry in request.inputs}
    if feeds.keys() != signature.inputs.keys():
        raise BadSample(f"signature {name!r} takes {_names(signature.inputs)}, the record has {_names(feeds)}")
    for key, array in feeds.items():
        spec = signature.inputs[key]
        if array.dtype != DTYPES[spec.dtype] or not shape_fits(array.shape, spec.shape):
            given = f"{array.dtype} {list(array.shape)}"
            raise BadSample(f"input {key!r} of signature {name!r} is {spec}, the record has {given}")
    unknown = [output for output in request.output_filter if output not in signature.outputs]
    if unknown:
        raise BadSample(f"signature {name!r} has no output {unknown[0]!r:.80}")
    return Sample(name, feeds, tuple(dict.fromkeys(request.output_filter)) or tuple(signature.outputs))


def _names(names: Mapping[str, Any]) -> str:
    return ", ".join(f"{name!r:.40}" for name in sorted(names)[:8]) or "nothing"


@cache
def _prediction_log() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="prediction_log.proto", package="recorded", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, field, kind, label, of in fields:
            type_name = f".recorded.{of}" if of else None
            message.field.add(number=number, name=field, type=kind, label=label, type_name=type_name)
    pool = descriptor_pool.DescriptorPool()  # of its own: tensorflow_serving_api may be installed beside
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("recorded.PredictionLog"))

"""What a request with a body becomes: a signature, its inputs, and how its outputs are to be written. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pool.gateway.http import Refused
from pool.gateway.serving.answers import classifications, predictions, regressions
from pool.gateway.serving.columns import inputs_of
from pool.gateway.serving.examples import examples_of
from pool.gateway.serving.paths import Method
from pool.gateway.serving.shapes import lifted, lowered
from pool.wire.records import Model, SignatureInfo
from pool.wire.signatures import DEFAULT_SIGNATURE
from pool.wire.tensors import Array

__all__ = ["Call", "call_of"]


@dataclass(frozen=True, slots=True)
class Call:
    """`outputs`: those to ask for; None are all. `write`: makes the response's JSON of them; raises `Refused`."""

    signature: str
    inputs: Mapping[str, Array]
    outputs: tuple[str, ...] | None
    write: Callable[[Mapping[str, Array]], bytes]


def call_of(method: Method, body: Any, model: Model) -> Call:
    """`body`: what the request's JSON says. Raises `Refused`."""
    if type(body) is not dict:
        raise Refused(400, "the body is not a JSON object")
    name = _signature_name(body, model)
    signature = model.signatures[name]
    if method is Method.PREDICT:
        given, form = inputs_of(body, signature)
        inputs = lifted(given, signature)
        if all(inputs[each] is given[each] for each in given):
            return Call(name, inputs, None, lambda found: predictions(found, form))
        return Call(name, inputs, None, lambda found: predictions(lowered(found, signature), form))
    outputs = _outputs(method, name, signature)
    examples = examples_of(body)
    write = classifications if method is Method.CLASSIFY else regressions
    return Call(name, {"inputs": examples}, outputs, lambda found: write(found, len(examples)))


def _signature_name(body: Mapping[str, Any], model: Model) -> str:
    """As a job without a signature has it: the default one, or the only one. An empty name is none."""
    name = body.get("signature_name", "")
    if type(name) is not str:
        raise Refused(400, "the value of 'signature_name' is not a text")
    if not name and DEFAULT_SIGNATURE not in model.signatures and len(model.signatures) == 1:
        return next(iter(model.signatures))
    name = name or DEFAULT_SIGNATURE
    if name not in model.signatures:
        there = ", ".join(model.signatures)
        raise Refused(400, f"model {model.model} has no signature {name!r:.200}; there are: {there:.1000}")
    return name


def _outputs(method: Method, name: str, signature: SignatureInfo) -> tuple[str, ...]:
    """Those that a `:classify` or `:regress` asks for. Raises `Refused` for a signature that the method cannot call.

    What counts are the names that TensorFlow Serving has for them. The method name does not: TensorFlow 2 gives all
    signatures that of predict.
    """
    wanted = ("classes", "scores") if method is Method.CLASSIFY else ("outputs",)
    there = tuple(each for each in wanted if each in signature.outputs)
    takes = [(each, tensor.dtype) for each, tensor in signature.inputs.items()]
    if takes == [("inputs", "string")] and there:
        return there
    raise Refused(
        400,
        f"signature {name!r:.200} is not made for :{method.value}, which takes an input 'inputs' of strings and gives"
        f" {' or '.join(map(repr, wanted))}; its method name is {signature.method_name!r:.200}",
    )

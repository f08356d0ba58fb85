"""A call held against the model's signatures.

TensorFlow's callables check no shape (a [2, 3, 8] fed to a [?, 8] placeholder comes back as a plausible [6, 8]) and
take a big-endian array for garbage, so everything is checked here, whatever the client says it has checked.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pool.wire.calls import Call
from pool.wire.signatures import DEFAULT_SIGNATURE, ModelInfo, Refused, Signature, TensorSpec
from pool.wire.tensors import DTYPES, Array, dtype_name
from workers.casts import cast

__all__ = ["Invocation", "resolve"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call that fits: each input of `signature` is in `feeds` with its own dtype and a fitting shape."""

    signature: str
    outputs: Sequence[str]
    feeds: Mapping[str, Array]


def resolve(model: ModelInfo, call: Call, arrays: Sequence[Array]) -> Invocation:
    """What to run for a call whose tensors are `arrays`. Raises `Refused` with one line for the caller."""
    name = _signature_name(model, call.signature)
    signature = model.signatures[name]
    where = f"model {model.name}, signature {name}"
    # Each once: a name that is asked for a million times must not make an answer of a million copies.
    outputs = tuple(dict.fromkeys(signature.outputs if call.outputs is None else call.outputs))
    for output in outputs:
        if output not in signature.outputs:
            raise Refused(f"{where}: no output {output!r:.80}; {_choice(output, signature.outputs)}")
    given: dict[str, Array] = {}
    for header, array in zip(call.tensors, arrays, strict=True):
        key = _input_name(header.name, signature, where)
        if key in given:
            raise Refused(f"{where}: input {key!r} is given twice")
        given[key] = _fit(array, header.weak, signature.inputs[key], f"{where}, input {key!r}")
    missing = [key for key in signature.inputs if key not in given]
    if missing:
        wanted = ", ".join(f"{key!r} ({signature.inputs[key]})" for key in missing)
        raise Refused(f"{where}: missing input {wanted}")
    return Invocation(name, outputs, given)


def _signature_name(model: ModelInfo, asked: str | None) -> str:
    if asked is not None:
        if asked not in model.signatures:
            raise Refused(f"model {model.name}: no signature {asked!r:.80}; {_choice(asked, model.signatures)}")
        return asked
    if DEFAULT_SIGNATURE in model.signatures:
        return DEFAULT_SIGNATURE
    if len(model.signatures) == 1:
        return next(iter(model.signatures))
    raise Refused(f"model {model.name} has several signatures, name one of them: {_names(model.signatures)}")


def _input_name(asked: str, signature: Signature, where: str) -> str:
    if asked in signature.inputs:
        return asked
    if asked == "":
        if len(signature.inputs) == 1:
            return next(iter(signature.inputs))
        raise Refused(f"{where}: an array alone needs exactly one input, give a dict of {_names(signature.inputs)}")
    raise Refused(f"{where}: no input {asked!r:.80}; {_choice(asked, signature.inputs)}")


def _fit(array: Array, weak: bool, spec: TensorSpec, where: str) -> Array:
    given = TensorSpec(dtype_name(array.dtype), array.shape)
    if not _shape_fits(array.shape, spec.shape):
        raise Refused(f"{where}: expected {spec}, got {given}")
    if given.dtype == "bool" and array.size and array.view("uint8").max() > 1:
        raise Refused(f"{where}: expected {spec}, got {given} with a byte that is neither 0 nor 1")
    kept = cast(array, DTYPES[spec.dtype], weak)
    if kept is None:
        raise Refused(f"{where}: expected {spec}, got {given}, which cannot be cast without loss")
    return kept


def _shape_fits(shape: tuple[int, ...], wanted: tuple[int, ...] | None) -> bool:
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(axis in (-1, size) for size, axis in zip(shape, wanted, strict=True))


def _choice(asked: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(asked[:80], list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {_names(names)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"

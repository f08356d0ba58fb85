"""A call held against the model's signatures.

TensorFlow's callables check no shape (a [2, 3, 8] fed to a [?, 8] placeholder comes back as a plausible [6, 8]) and
take a big-endian array for garbage, so everything is checked here, whatever the client says it has checked.
"""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pool.wire.calls import TensorHeader
from pool.wire.codec import BadFrame
from pool.wire.signatures import ModelInfo, Refused, Signature, TensorSpec
from pool.wire.tensors import DTYPES
from workers.inputs import Input

__all__ = ["Invocation", "resolve", "shape_fits"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """A call that fits: `inputs` are those of `signature`, each once, in the order of their buffers."""

    signature: str
    outputs: tuple[str, ...]
    inputs: tuple[Input, ...]


def resolve(
    model: ModelInfo, signature: str | None, outputs: Sequence[str] | None, tensors: Sequence[TensorHeader]
) -> Invocation:
    """What to run for a call with these tensors, whose shapes are whole.

    Raises `Refused` with one line for the caller, and `BadFrame` for what no client of ours sends.
    """
    name = _signature_name(model, signature)
    found = model.signatures[name]
    where = f"model {model.name}, signature {name}"
    # Each once: a name that is asked for a million times must not make an answer of a million copies.
    wanted = tuple(dict.fromkeys(found.outputs if outputs is None else outputs))
    for output in wanted:
        if output not in found.outputs:
            raise Refused(f"{where}: no output {output!r:.80}; {_choice(output, found.outputs)}")
    given: dict[str, Input] = {}
    for header in tensors:
        key = _input_name(header.name, found, where)
        if key in given:
            raise Refused(f"{where}: input {key!r} is given twice")
        given[key] = _input(key, header, found, f"{where}, input {key!r}")
    missing = [key for key in found.inputs if key not in given]
    if missing:
        named = ", ".join(f"{key!r} ({found.inputs[key]})" for key in missing)
        raise Refused(f"{where}: missing input {named}")
    return Invocation(name, wanted, tuple(given.values()))


def _signature_name(model: ModelInfo, asked: str | None) -> str:
    name = model.signature_name(asked)
    if name is None:
        raise Refused(f"model {model.name} has several signatures; name one of them: {_names(model.signatures)}")
    if name in model.left_out:
        raise Refused(f"model {model.name}: signature {name!r:.80} is not offered: {model.left_out[name]}")
    if name not in model.signatures:
        raise Refused(f"model {model.name}: no signature {name!r:.80}; {_choice(name, model.signatures)}")
    return name


def _input_name(asked: str, signature: Signature, where: str) -> str:
    named = signature.parts.get(asked, asked)
    if named in signature.inputs:
        return named
    if asked == "":
        if len(signature.inputs) == 1:
            return next(iter(signature.inputs))
        raise Refused(f"{where}: a single array needs exactly one input; give a dict of {_names(signature.inputs)}")
    hint = _hint(asked, signature) or _choice(asked, signature.inputs)
    raise Refused(f"{where}: no input {asked!r:.80}; {hint}")


def _input(name: str, header: TensorHeader, signature: Signature, where: str) -> Input:
    spec = signature.inputs[name]
    if header.dtype not in DTYPES:
        raise BadFrame(f"no dtype {header.dtype!r:.40}")
    if any(axis < 0 for axis in header.shape):
        raise BadFrame(f"no shape {header.shape!r:.80}")
    if not shape_fits(header.shape, spec.shape):
        got, hint = f"{TensorSpec(header.dtype, header.shape)!s:.500}", _hint(name, signature)
        why = f"; {hint}" if hint else _missing_axis(name, header.shape, spec.shape)
        raise Refused(f"{where}: expected {spec}, got {got}{why}")
    return Input(name, header, spec, where)


def _missing_axis(name: str, shape: tuple[int, ...], wanted: tuple[int, ...] | None) -> str:
    """What to do where one row was given in the place of a batch of one."""
    if not wanted or wanted[0] not in (-1, 1):
        return ""
    hint = f": add an axis (`{name if name.isidentifier() else 'array'}[None]`)"
    if shape_fits((1, *shape), wanted):
        return hint
    # A long row looks like many rows, so the pool may have cut it.
    is_cut = len(wanted) > 1 and shape and shape[0] < wanted[1] and shape_fits(shape[1:], wanted[2:])
    return f" in this part of the job{hint}" if is_cut else ""


def _hint(name: str, signature: Signature) -> str:
    """For who gives one array, or nested lists, in the place of a tensor that travels as its parts."""
    for kind, first, made in (
        ("ragged", "flat_values", "Ragged.from_rows"),
        ("sparse", "indices", "Sparse.from_dense"),
    ):
        if f"{name}.{first}" in signature.inputs or f"{name}.{first}" in signature.parts:
            return f"it is a {kind} tensor: give the inputs `pool.{made}(…).parts({name!r})`"
    return ""


def shape_fits(shape: tuple[int, ...], wanted: tuple[int, ...] | None) -> bool:
    """Whether an input of `wanted`, as a `TensorSpec` has it, takes an array of this shape."""
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(axis in (-1, size) for size, axis in zip(shape, wanted, strict=True))


def _choice(asked: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(asked[:80], list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {_names(names)}"


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"

"""What a model takes and gives: as a worker tells it, as a client and a lane check a job against it."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

from pool.wire.specs import Tensor

DEFAULT_SIGNATURE = "serving_default"


class TensorInfo(NamedTuple):
    dtype: str  # TensorFlow's name, as in `pool.wire.specs.ITEM_BYTES`
    shape: tuple[int, ...] | None  # -1 is an axis of any size, None any shape

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.dtype} of any shape"
        return f"{self.dtype} [{', '.join('?' if axis < 0 else str(axis) for axis in self.shape)}]"


@dataclass(frozen=True, slots=True)
class Signature:
    inputs: Mapping[str, TensorInfo]
    outputs: Mapping[str, TensorInfo]
    defaults: frozenset[str] = frozenset()  # inputs that may be left out
    # Of each output, why jobs that ask for it run alone; "" if its row i depends on row i of the inputs alone.
    verdicts: Mapping[str, str] = field(default_factory=dict)
    max_batch: int = 1  # rows of one run at most, if it is joined

    def is_joined(self, inputs: Iterable[str], outputs: Iterable[str] | None) -> bool:
        """Whether jobs that give these inputs, and ask for these outputs (None: all), share runs.

        The verdicts are of jobs that leave out what has a default.
        """
        are_rows = all(self.verdicts.get(name) == "" for name in outputs or self.outputs)
        return are_rows and self.defaults.isdisjoint(inputs)

    def record(self) -> dict[str, Any]:
        """For msgpack and JSON."""
        return {**asdict(self), "defaults": sorted(self.defaults)}

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> "Signature":
        """Raises `KeyError`, `TypeError` or `ValueError` for what is no record."""

        def infos(named: Mapping[str, Any]) -> dict[str, TensorInfo]:
            return {
                str(name): TensorInfo(str(dtype), None if shape is None else tuple(int(axis) for axis in shape))
                for name, (dtype, shape) in named.items()
            }

        inputs, outputs, defaults = infos(record["inputs"]), infos(record["outputs"]), map(str, record["defaults"])
        verdicts = {str(name): str(why) for name, why in record["verdicts"].items()}
        return cls(inputs, outputs, frozenset(defaults), verdicts, int(record["max_batch"]))

    def mismatch(self, tensors: Iterable[Tensor], outputs: Sequence[str] | None) -> str:
        """Why the signature does not take a job with these tensors: one line, or "" if it does."""
        given = {tensor.name: tensor for tensor in tensors}
        for name, tensor in given.items():
            if name not in self.inputs:
                return f"no input {name!r:.80}; {choice(name, self.inputs)}"
            wanted = self.inputs[name]
            if tensor.dtype != wanted.dtype or not shape_fits(tensor.shape, wanted.shape):
                is_row = tensor.dtype == wanted.dtype and shape_fits((1, *tensor.shape), wanted.shape)
                hint = ": add an axis (`array[None]`)" if is_row else ""
                return f"input {name!r}: expected {wanted}, got {TensorInfo(tensor.dtype, tensor.shape)}{hint}"
        missing = [name for name in self.inputs if name not in given and name not in self.defaults]
        if missing:
            return "missing input " + ", ".join(f"{name!r} ({self.inputs[name]})" for name in missing)
        for name in outputs or ():
            if name not in self.outputs:
                return f"no output {name!r:.80}; {choice(name, self.outputs)}"
        return ""


def signature_name(asked: str, signatures: Iterable[str]) -> str:
    """The signature that a job means: the one it names, else the default one, else the only one.

    Raises `LookupError` with a line for the caller.
    """
    names = list(signatures)
    if asked:
        if asked not in names:
            raise LookupError(f"no signature {asked!r:.80}; {choice(asked, names)}")
        return asked
    if DEFAULT_SIGNATURE in names:
        return DEFAULT_SIGNATURE
    if len(names) == 1:
        return names[0]
    raise LookupError(f"there are several signatures; name one of them: {', '.join(sorted(names)) or 'none'}")


def shape_fits(shape: Sequence[int], wanted: Sequence[int] | None) -> bool:
    if wanted is None:
        return True
    return len(shape) == len(wanted) and all(axis in (-1, size) for size, axis in zip(shape, wanted, strict=True))


def choice(asked: str, names: Iterable[str]) -> str:
    """What the caller could have meant."""
    near = difflib.get_close_matches(asked[:80], list(names), n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(sorted(names)) or 'none'}"

"""What a model gives, held against what it declares.

An answer that contradicts its declaration is what the model gives all the same: it is answered, and remarked on. To
refuse it would break models that work everywhere else; the rows, on which joining and cutting rely, are checked apart.
"""

from collections.abc import Callable, Mapping

from pool.wire.signatures import ModelInfo, TensorSpec
from pool.wire.tensors import DTYPES, Array, dtype_name
from pool.wire.worker_messages import Remark
from workers.signatures import shape_fits

__all__ = ["Declared"]


class Declared:
    """Of one model. Safe from several threads."""

    def __init__(self, model: ModelInfo, tell: Callable[[Remark], object]) -> None:
        """`tell` hears of each output once."""
        self._model = model.name
        self._outputs = {name: signature.outputs for name, signature in model.signatures.items()}
        self._tell = tell
        self._fitted: dict[str, dict[str, tuple[int, ...] | None]] = {  # the last shapes that did
            name: dict.fromkeys(outputs) for name, outputs in self._outputs.items()
        }
        self._told: set[tuple[str, str]] = set()

    def check(self, signature: str, fetched: Mapping[str, Array]) -> None:
        """`fetched`: of one run, by the names of the outputs."""
        specs, fitted = self._outputs[signature], self._fitted[signature]
        for name, array in fetched.items():
            if fitted[name] == array.shape:
                continue  # most runs are like the one before
            spec = specs[name]
            if shape_fits(array.shape, spec.shape) and array.dtype == DTYPES[spec.dtype]:
                fitted[name] = array.shape
            elif (signature, name) not in self._told:
                self._told.add((signature, name))
                found = TensorSpec(dtype_name(array.dtype), array.shape)
                text = f"declared as {spec} but came back as {found!s:.200}; callers get it as it came"
                self._tell(Remark(self._model, f"signature {signature}, output {name!r}", text))

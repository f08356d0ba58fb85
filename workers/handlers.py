"""Python around a model: a class of the user's, which `handler = "module:Class"` of its [[model]] names.

What such a class may have, is given and may return is the user's contract: `pool help handlers`. In short: its methods
are called for whole jobs; with `rows_independent = True` for one row each, or for all rows of a run where their names
end in `_batch`. A job is no unit then: a client cuts large inputs and gathers small ones. Where an axis 0 of the
caller's or the model's tensors is not of any size, jobs come whole and are not joined.
"""

import importlib
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from pool.wire.files import handler_files
from pool.wire.signatures import Signature, TensorInfo, choice, shape_fits
from pool.wire.specs import common_rows
from pool.wire.tensors import DTYPES, Array, strings_of
from workers.backend import Arrays, CannotLoad, Model, RowsDiffer, Run, RunFailed
from workers.lane import cut

METHODS = ("preprocess", "postprocess")


class Handled:
    """A `workers.backend.Model` with its handler around it."""

    def __init__(self, model: Model, settings: Mapping[str, Any]) -> None:
        """Raises `CannotLoad`."""
        self._model, self._name = model, settings["handler"]
        try:
            made = instance(settings)
            self._batch = [getattr(made, f"{name}_batch", None) for name in METHODS]
            self._pre, self._post = (self._batch[at] or getattr(made, name, None) for at, name in enumerate(METHODS))
            declared = declared_by(made)
            if not (self._pre if declared.inputs else self._pre or self._post) or (declared.outputs and not self._post):
                raise CannotLoad("a method is missing: inputs need preprocess, outputs postprocess; write one or both")
            only = getattr(made, "signature", None)
            if only is not None and only not in model.signatures:
                raise CannotLoad(f"no signature {only!r:.80}; {choice(str(only), model.signatures)}")
        except BaseException as error:  # `SystemExit`, `CancelledError`: what a handler raises ends no lane
            raise CannotLoad(f"model {settings['name']}: handler {self._name}: {said(error)}") from error
        self._keeps_rows = getattr(made, "rows_independent", False) is True
        self.is_stateful = model.is_stateful or getattr(made, "stateful", False) is True
        self.left_out, self.notes = model.left_out, model.notes
        self.warm_up, self.trace, self.prepare_session = model.warm_up, model.trace, model.prepare_session
        self._handled = {name: each for name, each in model.signatures.items() if only in (None, name)}
        self.signatures: Mapping[str, Signature] = {**model.signatures}
        for name, one in self._handled.items():
            seen = replace(one, inputs=declared.inputs or one.inputs, outputs=declared.outputs or one.outputs)
            self.signatures = {**self.signatures, name: seen}

    def verdicts(self, signature: str, batching: str) -> Mapping[str, str]:
        verdicts = self._model.verdicts(signature, batching)
        why = self._why_whole(signature) or ("it is stateful" if self.is_stateful else "")
        if signature not in self._handled or not (why or self._post):
            return verdicts
        return dict.fromkeys(self.signatures[signature].outputs, why or next(filter(None, verdicts.values()), ""))

    def _why_whole(self, signature: str) -> str:
        """Why its methods are called for whole jobs; "" if for rows."""
        if not self._keeps_rows:
            return "its handler does not say rows_independent = True"
        for each in (self.signatures[signature], self._model.signatures[signature]):
            for name, info in (*each.inputs.items(), *each.outputs.items()):
                if not info.shape or info.shape[0] != -1:
                    return f"axis 0 of {name!r} ({info}) is not of any size"
        return ""

    def prepare(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> Run:
        if (one := self._handled.get(signature)) is None:
            return self._model.prepare(signature, inputs, outputs)
        fed = {name: info for name, info in one.inputs.items() if name in inputs or name not in one.defaults}
        fetched = [*one.outputs] if self._post else outputs
        run_model = self._model.prepare(signature, [*fed] if self._pre else inputs, fetched)
        answered, has_rows = self.signatures[signature].outputs, not self._why_whole(signature)

        def run(given: Arrays) -> Arrays:
            rows = common_rows([array.shape for array in given.values()]) if has_rows else 0
            if has_rows and not rows and any(map(len, given.values())):
                raise RunFailed("InvalidInput", "the handler is called for rows: give inputs of one length")
            found = run_model(self._called(self._pre, [given], fed, rows))
            made = self._called(self._post, [found, given], answered, rows)
            return {name: made[name] for name in sorted(outputs)}

        return run

    def _called(self, method: Any, given: Sequence[Arrays], specs: Mapping[str, TensorInfo], rows: int) -> Arrays:
        """What it returns, of so many rows, 0: of any number; without a method, what it would be given first."""
        if method is None:
            return given[0]
        if rows > 1 and method not in self._batch:
            each = [cut(arrays, [1] * rows, 0) for arrays in given]
            if not all(each):
                raise RowsDiffer("ModelFailed", "the model's outputs have other rows than its inputs")
            rows_made = [self._called(method, row, specs, 1) for row in zip(*each, strict=True)]
            try:
                return {name: np.concatenate([row[name] for row in rows_made]) for name in specs}
            except ValueError as error:
                raise RowsDiffer("ModelFailed", f"its rows do not fit together: {error}; send one row a job") from None
        try:
            locked = [{name: np.broadcast_to(each, each.shape) for name, each in arrays.items()} for arrays in given]
            made = method(*locked)
            if not isinstance(made, Mapping) or made.keys() != specs.keys():
                raise TypeError(f"it returned {made!r:.200}; right is a dict with {', '.join(sorted(specs))}")
            return {name: fitted(name, made[name], info, rows) for name, info in specs.items()}
        except BaseException as error:
            is_input = method == self._pre and isinstance(error, ValueError)
            name = "OutOfMemory" if isinstance(error, MemoryError) else "InvalidInput" if is_input else "ModelFailed"
            called = getattr(method, "__name__", "a method")  # what `functools.partial` makes has none
            raise RunFailed(name, f"handler {self._name}, {called}: {said(error)}") from error


def instance(settings: Mapping[str, Any]) -> Any:
    """Raises `CannotLoad`, or whatever the user's code raises."""
    module_name, _, class_name = settings["handler"].partition(":")
    if (folder := settings["handler_path"]) and folder not in sys.path:
        sys.path.append(folder)  # at the end: what lies there stands in for nothing that is installed
    module = importlib.import_module(module_name)
    files, found = handler_files(settings["handler"], folder), getattr(module, "__file__", None)
    if files and files != [found]:  # else the model would answer by another one's class
        raise CannotLoad(f"{files[0]} is hidden by {found or module_name}: give the module another name")
    if not isinstance(kind := getattr(module, class_name, None), type):
        raise CannotLoad(f"{found} has no class {class_name}")
    return kind(**settings["handler_options"])


def declared_by(made: Any) -> Signature:
    """Empty where it declares nothing. Raises `CannotLoad`."""
    given = {what: getattr(made, what, {}) for what in ("inputs", "outputs")}
    with suppress(BaseException):
        found = Signature.from_record({**given, "defaults": (), "verdicts": {}, "max_batch": 1})
        infos = (*found.inputs.values(), *found.outputs.values())
        if all(info.dtype in DTYPES and min(info.shape or (0,)) >= -1 for info in infos):
            return found
    raise CannotLoad(f'{given!r:.400} does not fit; write such as inputs = {{"image": ("string", [-1])}}')


def fitted(name: str, value: object, info: TensorInfo, rows: int) -> Array:
    """A copy of its own. Raises whatever numpy raises, and `TypeError`."""
    got = np.asarray(value, object if info.dtype == "string" else None)
    array = got.astype(DTYPES[info.dtype], order="C")
    loses_digits = got.dtype.kind == "f" and np.can_cast(got.dtype, array.dtype, "same_kind")
    if info.dtype == "string":
        array.reshape(-1)[:] = strings_of(array)
    elif got.dtype != array.dtype and not loses_digits and not np.array_equal(got, array):
        raise TypeError(f"{name!r} has {got.dtype} values that {info.dtype} does not hold")
    if not shape_fits(got.shape, info.shape) or (rows and len(got) != rows):
        raise TypeError(f"{name!r} has the shape {[*got.shape]}; right is {info}{f' with {rows} rows' * bool(rows)}")
    return array


def said(error: BaseException) -> str:
    text = " ".join(str(error)[:1500].split())
    return text if isinstance(error, CannotLoad) else f"{type(error).__name__}: {text}"

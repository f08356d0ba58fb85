"""The class that a model's configuration names: found, made, and held to what it says of itself.

    class Digits:
        inputs = {"serving_default": {"image": ("string", [None])}}        # what callers give, where that differs
        outputs = {"serving_default": {"name": ("string", [None])}}        # what they get

        def __init__(self, context): ...                                   # a `pool.Context`
        def preprocess(self, inputs, signature): ...                       # of a part, to what the graph takes
        def postprocess(self, outputs, signature): ...                     # of the graph, to what the part is answered

Each part of this may be left out, but not both methods.
"""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pool.wire.faults import Fault
from pool.wire.signatures import Context, ModelInfo, Refused, TensorSpec
from pool.wire.tensors import DTYPES, Array, dtype_name, to_array
from pool.wire.texts import is_utf8
from pool.wire.worker_messages import HandlerSettings
from workers.backend import CannotLoad
from workers.casts import cast
from workers.raised import text_of
from workers.signatures import shape_fits

__all__ = ["Handler", "load_handler"]

_RAISED = (Exception, SystemExit)  # a `sys.exit` in it must end neither lane nor worker

Specs = Mapping[str, TensorSpec]
Arrays = dict[str, Array]
_Method = Callable[[Arrays, str], object]


class Handler:
    """Safe from several threads if the class is: its methods are called by all lanes at the same time."""

    def __init__(self, name: str, made: object, graph: ModelInfo) -> None:
        """Raises `CannotLoad` for one that has no method, or declares what is no tensor."""
        self._name = name
        self._graph = graph
        self._preprocess = _method(made, "preprocess")
        self._postprocess = _method(made, "postprocess")
        where = f"model {graph.name}: handler {name}"
        if self._preprocess is None and self._postprocess is None:
            raise CannotLoad(f"{where}: it has neither a method preprocess nor a method postprocess")
        inputs = _declared(made, "inputs", graph, where)
        outputs = _declared(made, "outputs", graph, where)
        for kind, declared, method in (("inputs", inputs, "preprocess"), ("outputs", outputs, "postprocess")):
            if declared and _method(made, method) is None:
                raise CannotLoad(f"{where}: it declares {kind} but has no method {method} to convert them")
        signatures = {
            key: replace(each, inputs=inputs.get(key, each.inputs), outputs=outputs.get(key, each.outputs))
            for key, each in graph.signatures.items()
        }
        self.info = replace(graph, signatures=signatures, handler=name)
        """The model as its callers see it."""

    @property
    def needs_all_outputs(self) -> bool:
        """Whether the graph is to be run for all that it gives, whatever is asked for."""
        return self._postprocess is not None

    def preprocess(self, inputs: Mapping[str, Array], signature: str) -> Arrays:
        """What the graph is fed. Raises `Refused`: by the caller's fault where it raises ValueError or TypeError."""
        if self._preprocess is None:
            return dict(inputs)
        specs = self._graph.signatures[signature].inputs
        return self._called("preprocess", self._preprocess, inputs, signature, specs, (ValueError, TypeError))

    def postprocess(self, outputs: Mapping[str, Array], signature: str) -> Arrays:
        """What the part is answered. Raises `Refused`."""
        if self._postprocess is None:
            return dict(outputs)
        specs = self.info.signatures[signature].outputs
        return self._called("postprocess", self._postprocess, outputs, signature, specs, ())

    def _called(
        self,
        what: str,
        method: _Method,
        given: Mapping[str, Array],
        signature: str,
        specs: Specs,
        of_the_caller: tuple[type[Exception], ...],
    ) -> Arrays:
        where = f"model {self._graph.name}, signature {signature}: handler {self._name}, {what}"
        try:
            found = method({name: _read_only(array) for name, array in given.items()}, signature)
        except MemoryError as error:
            raise Refused(f"{where}: {_said(error)}", Fault.OUT_OF_MEMORY) from error
        except _RAISED as error:
            fault = Fault.INVALID_INPUT if isinstance(error, of_the_caller) else Fault.MODEL_FAILED
            raise Refused(f"{where}: {_said(error)}", fault) from error
        return _fitted(found, specs, f"{where}: it gave")


def load_handler(settings: HandlerSettings, graph: ModelInfo) -> Handler:
    """Imports the module and makes the class. Raises `CannotLoad` with one line for whatever that raises."""
    where = f"model {graph.name}: handler {settings.name}"
    module_name, _, class_name = settings.name.partition(":")
    if settings.folder and settings.folder not in sys.path:
        sys.path.append(settings.folder)  # at the end: what lies there stands in for nothing that is installed
    try:
        module = importlib.import_module(module_name)
    except _RAISED as error:
        places = f"the installed packages and in {settings.folder}" if settings.folder else "the installed packages"
        looked = f"; it was looked for in {places}" if isinstance(error, ModuleNotFoundError) else ""
        raise CannotLoad(f"{where}: it cannot be imported: {_said(error)}{looked}") from error
    file = getattr(module, "__file__", None) or "a module without a file"
    if settings.folder and _lies_in(settings.folder, module_name) and not _is_in(file, settings.folder):
        raise CannotLoad(f"{where}: the module {module_name} of {settings.folder} is hidden by {file}; rename it")
    found = getattr(module, class_name, None)
    if not isinstance(found, type):
        raise CannotLoad(f"{where}: {file} has no class {class_name}")
    context = Context(graph.name, graph.signatures, json.loads(settings.options))
    try:
        made = found(context) if any("__init__" in vars(each) for each in found.__mro__[:-1]) else found()
    except _RAISED as error:
        raise CannotLoad(f"{where}: it cannot be created: {_said(error)}") from error
    return Handler(settings.name, made, graph)


def _lies_in(folder: str, module: str) -> bool:
    path = Path(folder, *module.split("."))
    return path.with_suffix(".py").exists() or (path / "__init__.py").exists()


def _is_in(file: str, folder: str) -> bool:
    return Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))


def _method(made: object, name: str) -> _Method | None:
    found = getattr(made, name, None)
    return found if callable(found) else None


def _declared(made: object, what: str, graph: ModelInfo, where: str) -> dict[str, dict[str, TensorSpec]]:
    declared = getattr(made, what, None) or {}
    try:
        found = {
            key: {_name(name): _spec(*pair) for name, pair in dict(tensors).items()}
            for key, tensors in dict(declared).items()
        }
    except (TypeError, ValueError) as error:
        right = 'a dict such as {"serving_default": {"image": ("string", [None])}}'
        raise CannotLoad(f"{where}: its {what} are not valid: {_said(error)}; write {right}") from error
    unknown = sorted(set(found) - set(graph.signatures))
    if unknown:
        there = ", ".join(sorted(graph.signatures))
        raise CannotLoad(
            f"{where}: its {what} name the signature {unknown[0]!r}, which the model does not have: {there}"
        )
    return found


def _name(name: object) -> str:
    if not isinstance(name, str) or not is_utf8(name):
        raise ValueError(f"no name {name!r:.80}")
    return name


def _spec(dtype: str, shape: Any) -> TensorSpec:
    if dtype not in DTYPES:
        raise ValueError(f"no dtype {dtype!r:.40}")
    if shape is None:
        return TensorSpec(dtype, None)
    axes = tuple(-1 if axis is None else axis for axis in shape)
    if not all(type(axis) is int and axis >= -1 for axis in axes):
        raise ValueError(f"no shape {shape!r:.80}")
    return TensorSpec(dtype, axes)


def _read_only(array: Array) -> Array:
    """What it looks at may be the client's memory, or the model's own."""
    view = array.view()
    view.flags.writeable = False
    return view


def _fitted(found: object, specs: Specs, where: str) -> Arrays:
    """What a method gave, in the dtypes of `specs`. Raises `Refused` unless it is these tensors and no others."""
    if not isinstance(found, Mapping):
        raise Refused(f"{where} {type(found).__name__}, not a dict of arrays", Fault.MODEL_FAILED)
    if set(found) != set(specs):
        names, wanted = (", ".join(sorted(map(repr, each))) or "nothing" for each in (found, specs))
        raise Refused(f"{where} {names:.500}; expected are {wanted}", Fault.MODEL_FAILED)
    return {name: _array(found[name], spec, f"{where} {name!r}") for name, spec in specs.items()}


def _array(value: object, spec: TensorSpec, where: str) -> Array:
    try:
        array, weak = to_array(value)
    except (TypeError, ValueError) as error:
        raise Refused(f"{where}, which is not an array: {text_of(error)}", Fault.MODEL_FAILED) from error
    kept = cast(array, DTYPES[spec.dtype], weak) if shape_fits(array.shape, spec.shape) else None
    if kept is None:
        was = TensorSpec(dtype_name(array.dtype), array.shape)
        raise Refused(f"{where} as {was!s:.500}; expected is {spec}", Fault.MODEL_FAILED)
    return kept


def _said(error: BaseException) -> str:
    """One line: its type, its text, and where it was raised."""
    text = " ".join(f"{type(error).__name__}: {text_of(error)}".split())
    frames = traceback.extract_tb(error.__traceback__)
    at = f" ({os.path.basename(frames[-1].filename)}, line {frames[-1].lineno})" if frames else ""
    return f"{text:.1500}{at}"

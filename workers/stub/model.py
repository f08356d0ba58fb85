"""A model of Python functions: one a signature.

By name, "SIGNATURE/NAME:0" is the tensor of an input or an output, and "SIGNATURE" the operation that computes them.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pool.wire.session_runs import RUN_METADATA, WRITES
from pool.wire.signatures import ModelInfo, Refused, Signature, TensorSpec
from pool.wire.tensors import DTYPES, Array
from pool.wire.worker_messages import ModelSettings
from workers.backend import SessionCall
from workers.made_up import made_up_rows

__all__ = ["Feeds", "Fetched", "Functions", "StubModel", "pid"]

_SMALL = np.float32(1e-6)  # a stub may take them for seconds

Feeds = Mapping[str, Array]
Fetched = dict[str, Array]
Functions = Mapping[str, tuple[Signature, Callable[[Feeds], Fetched]]]


class StubModel:
    """Implements `workers.backend.Model`."""

    def __init__(
        self, settings: ModelSettings, functions: Functions, stateful: bool = False, tries: bool = True
    ) -> None:
        self._tries = tries
        signatures = {name: signature for name, (signature, _) in functions.items()}
        self._info = ModelInfo(settings.name, settings.path, signatures, stateful, version=settings.version)
        self._functions = {name: function for name, (_, function) in functions.items()}

    @property
    def info(self) -> ModelInfo:
        return self._info

    def run(self, signature: str, feeds: Feeds, outputs: Sequence[str]) -> Fetched:
        fetched = self._functions[signature](feeds)
        return {name: fetched[name] for name in outputs}

    def to_try(self, signature: str, rows: int) -> Iterator[Feeds]:
        """Small numbers, and none that is negative: those are what a stub is told to do wrong."""
        if not self._tries:
            return
        for feeds in made_up_rows(self._info.signatures[signature], rows):
            yield {name: array if array.dtype.hasobject else np.abs(array) * _SMALL for name, array in feeds.items()}

    def placement(self) -> dict[str, Any]:
        """Each signature is one node, whatever the rules say."""
        return {
            "devices": ["/cpu:0"],
            "signatures": {name: {"nodes": [_node(name)], "why": None} for name in self._info.signatures},
            "rules": [],
        }

    def bears_change(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> bool:  # noqa: ARG002
        """A stub reads what it is fed once."""
        return True

    def session_run(self, call: SessionCall) -> Fetched:
        """Runs each signature that something is fetched of. All of a stateful model write its state."""
        if self._info.stateful and not call.may_write:
            return {WRITES: np.array(True)}
        fetched: Fetched = {}
        for name in dict.fromkeys(fetch.partition("/")[0] for fetch in call.fetches):
            if name not in self._functions:
                raise Refused(f"ValueError: Argument `fetch` = {name} cannot be interpreted as a Tensor.")
            inputs = self._info.signatures[name].inputs
            missing = [key for key in inputs if f"{name}/{key}:0" not in call.feeds]
            if missing:
                raise Refused(
                    f"InvalidArgumentError: You must feed a value for placeholder tensor '{name}/{missing[0]}'"
                )
            feeds = {key: _fed(f"{name}/{key}:0", call.feeds[f"{name}/{key}:0"], spec) for key, spec in inputs.items()}
            answer = self._functions[name](feeds)
            fetched |= {f"{name}/{key}:0": array for key, array in answer.items()}
        answers = {name: fetched[name] for name in call.fetches if name in fetched}
        if call.trace_level:
            answers[RUN_METADATA] = np.array(b"traced", object)
        return answers

    def close(self) -> None:
        """A stub holds nothing."""

    def warm_up(self) -> None:
        """A stub is warm."""


def _fed(name: str, array: Array, spec: TensorSpec) -> Array:
    """As the signature's tensor takes it. Raises `Refused`, in the words of TensorFlow."""
    shape = spec.shape
    if shape is not None and (
        array.ndim != len(shape)
        or any(axis not in (-1, length) for axis, length in zip(shape, array.shape, strict=True))
    ):
        takes = tuple([None if axis < 0 else axis for axis in shape])
        raise Refused(
            f"ValueError: Cannot feed value of shape {array.shape} for Tensor {name}, which has shape {takes}"
        )
    try:
        return array.astype(DTYPES[spec.dtype])
    except (TypeError, ValueError) as error:
        raise Refused(f"{type(error).__name__}: {error}") from None


def _node(name: str) -> dict[str, Any]:
    return {"node": name, "function": "", "op": "Stub", "device": "/cpu:0", "rule": None}


def pid(shape: tuple[int, ...] = ()) -> Fetched:
    """Tells a test which process it was."""
    return {"pid": np.full(shape, os.getpid())}

"""A model of Python functions: one a signature."""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pool.wire.signatures import ModelInfo, Signature
from pool.wire.tensors import Array
from pool.wire.worker_messages import ModelSettings

__all__ = ["Feeds", "Fetched", "Functions", "StubModel", "pid"]

Feeds = Mapping[str, Array]
Fetched = dict[str, Array]
Functions = Mapping[str, tuple[Signature, Callable[[Feeds], Fetched]]]


class StubModel:
    """Implements `workers.backend.Model`."""

    def __init__(self, settings: ModelSettings, functions: Functions, stateful: bool = False) -> None:
        signatures = {name: signature for name, (signature, _) in functions.items()}
        self._info = ModelInfo(settings.name, settings.path, signatures, stateful)
        self._functions = {name: function for name, (_, function) in functions.items()}

    @property
    def info(self) -> ModelInfo:
        return self._info

    def run(self, signature: str, feeds: Feeds, outputs: Sequence[str]) -> Fetched:
        fetched = self._functions[signature](feeds)
        return {name: fetched[name] for name in outputs}

    def placement(self) -> dict[str, Any]:
        """Each signature is one node, whatever the rules say."""
        return {
            "devices": ["/cpu:0"],
            "signatures": {name: {"nodes": [_node(name)], "why": None} for name in self._info.signatures},
            "rules": [],
        }

    def warm_up(self) -> None:
        """A stub is warm."""


def _node(name: str) -> dict[str, Any]:
    return {"node": name, "function": "", "op": "Stub", "device": "/cpu:0", "rule": None}


def pid(shape: tuple[int, ...] = ()) -> Fetched:
    """Tells a test which process it was."""
    return {"pid": np.full(shape, os.getpid())}

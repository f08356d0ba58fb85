"""A loaded model: what it offers, and how each of its signatures is run."""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from pool.wire.signatures import Signature, TensorInfo
from pool.wire.tensors import DTYPES, Array
from workers.backend import Arrays, Run, RunFailed
from workers.tf.errors import of_a_run
from workers.tf.graph import (
    Reachable,
    blocks_its_thread,
    draws_random,
    uses_references,
    writes_references,
    writes_state,
)
from workers.tf.library import CallableOptions, tf
from workers.tf.signature_defs import Bound

__all__ = ["Model", "private", "zeros"]

_MOST_RARE = 32
_ALIGNED = 64
_Call = Callable[..., list[Any]]


class _Plan:
    """How a signature is run, as far as its graph says."""

    def __init__(self, bound: Bound, reachable: Reachable, is_stateful: bool) -> None:
        """`is_stateful`: the user says so, and may know more than the graph."""
        self.bound = bound
        always_fed = [tensor for name, tensor in bound.feeds.items() if name not in bound.signature.defaults]
        ops = reachable.ops(bound.fetches.values(), always_fed)
        self.writes = writes_state(ops)
        self.uses_references = uses_references(ops)
        self.writes_references = writes_references(ops)
        self.own_threads = blocks_its_thread(ops)
        self.draws_random = draws_random(ops)
        self.keeps = self.writes or is_stateful


class Model:
    """A `workers.backend.Model` over a Session that has the model loaded."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        session: Any,
        bound: Mapping[str, Bound],
        left_out: Mapping[str, str],
        reachable: Reachable,
        notes: Sequence[str],
    ) -> None:
        self._settings = settings
        self._session = session
        stated: bool | None = settings["stateful"]
        self._plans = {name: _Plan(each, reachable, stated is True) for name, each in bound.items()}
        self.signatures: Mapping[str, Signature] = {name: each.signature for name, each in bound.items()}
        self.left_out = left_out
        self.notes: Sequence[str] = list(notes)
        self.is_stateful = any(plan.writes for plan in self._plans.values()) if stated is None else stated
        self._writes_references = any(plan.writes_references for plan in self._plans.values())
        self._references = threading.Lock()
        # A callable takes half a megabyte that never comes back, so those that callers choose by outputs are few.
        self._usual = lru_cache(None)(self._callable)
        self._rare = lru_cache(_MOST_RARE)(self._callable)

    def can_be_joined(self, signature: str) -> bool:
        return not self._why_alone(signature)

    def _why_alone(self, signature: str) -> str:
        plan = self._plans[signature]
        if self.is_stateful:
            return "the model is stateful"
        if plan.draws_random:
            return "it draws random numbers"
        if plan.bound.has_parts:
            return "it has ragged or sparse tensors"
        described = plan.bound.signature
        for name, info in (*described.inputs.items(), *described.outputs.items()):
            if not info.shape or info.shape[0] != -1:
                return f"axis 0 of {name!r} ({info}) is not of any size"
        return "" if described.inputs else "it has no inputs"

    def prepare(self, signature: str, inputs: Sequence[str], outputs: Sequence[str]) -> Run:
        plan = self._plans[signature]
        bound = plan.bound
        first: dict[str, str] = {}
        for name in inputs:
            first.setdefault(bound.feeds[name], name)
        twins = [(first[bound.feeds[name]], name) for name in inputs if first[bound.feeds[name]] != name]
        names = [*first.values()]
        left = {bound.feeds[name]: array for name, array in bound.defaults.items() if bound.feeds[name] not in first}
        constants = [*left.values()]
        feeds = (*first, *left)
        # In an order of their own: the same outputs in another order are no other callable.
        fetches = tuple(sorted({bound.fetches[name] for name in outputs}.difference(feeds)))
        places = {tensor: place for place, tensor in enumerate((*fetches, *feeds))}
        found = [
            (name, places[bound.fetches[name]], DTYPES[bound.signature.outputs[name].dtype]) for name in sorted(outputs)
        ]
        gives_feeds = any(place >= len(fetches) for _, place, _ in found)
        try:
            is_usual = len(outputs) == len(bound.fetches) and len(inputs) == len(bound.feeds)
            call = self._call(plan, feeds, fetches, is_usual)
        except Exception as error:
            raise of_a_run(error) from error
        keeps = plan.keeps

        def run(arrays: Arrays) -> Arrays:
            if twins:
                _check_twins(arrays, twins)
            values = [arrays[name] for name in names]
            if constants:
                values += constants
            try:
                fetched = call(*[private(value) for value in values]) if keeps else call(*values)
            except Exception as error:  # of the model's own making, by what it computes or refuses
                raise of_a_run(error) from error
            if gives_feeds:
                fetched = [*fetched, *values]
            return {
                name: value if type(value := fetched[place]) is np.ndarray else _as_array(value, dtype)
                for name, place, dtype in found
            }

        return run

    def _call(self, plan: _Plan, feeds: tuple[str, ...], fetches: tuple[str, ...], is_usual: bool) -> _Call:
        if not fetches:  # TensorFlow refuses a call for nothing
            return lambda *_: []
        if is_usual:
            call = self._usual(feeds, fetches, plan.own_threads)
        else:
            rare = self._rare
            rare(feeds, fetches, plan.own_threads)  # a failure shows now

            def call(*values: Array) -> list[Any]:
                return rare(feeds, fetches, plan.own_threads)(*values)

        # The run of another lane may write the buffer that this one fetched, until it is copied. No lock without
        # need: runs that hand each other values through a queue wait for each other.
        if not (self._writes_references and plan.uses_references):
            return call

        def call_alone(*values: Array) -> list[Any]:
            with self._references:
                return [each.copy() if isinstance(each, np.ndarray) else each for each in call(*values)]

        return call_alone

    def _callable(self, feeds: tuple[str, ...], fetches: tuple[str, ...], own_threads: bool) -> _Call:
        """In the caller's thread, which saves a hand-over of 20 µs; ops that block need TensorFlow's."""
        run = tf.compat.v1.RunOptions(inter_op_thread_pool=0 if own_threads else -1)
        options = CallableOptions(feed=feeds, fetch=fetches, run_options=run)
        made: _Call = self._session._make_callable_from_options(options)
        return made

    def warm_up(self) -> None:
        """Prepares each signature, and runs those on zeros that change no state."""
        vouched = self._settings["batching"] == "on"
        notes = list(self.notes)
        for name, signature in self.signatures.items():
            alone = self._why_alone(name)
            if vouched and alone:
                notes.append(f'signature {name!r}: batching = "on" has no effect: {alone}')
            sizes = [1, self._settings["max_batch"]] if vouched and not alone else [1]
            what = "to be prepared"
            try:
                run = self.prepare(name, list(signature.inputs), list(signature.outputs))
                plan = self._plans[name]
                # What waits for another op may wait for ever. Parts of ragged or sparse tensors have no zeros.
                if plan.keeps or plan.own_threads or any(info.shape is None for info in signature.inputs.values()):
                    continue
                for rows in dict.fromkeys(sizes):
                    what = f"its warm-up on zeros (batch size {rows})"
                    run({key: zeros(info, rows) for key, info in signature.inputs.items()})
            except RunFailed as error:
                notes.append(f"signature {name!r} failed {what}: {error}")
        self.notes = notes


def zeros(info: TensorInfo, rows: int) -> Array:
    """Or empty strings. Axis 0 is `rows` where its size is unknown, each other such axis 1."""
    shape = tuple(axis if axis >= 0 else 1 if at else rows for at, axis in enumerate(info.shape or ()))
    dtype = DTYPES[info.dtype]
    if dtype.hasobject:
        return np.full(shape, b"", dtype)
    return np.zeros(shape, dtype)


def private(array: Array) -> Array:
    """A copy that TensorFlow may keep or write: aligned, so that it makes no other. Strings it never keeps."""
    if array.dtype.hasobject:
        return array
    memory = np.empty(array.nbytes + _ALIGNED, np.uint8)
    begin = -memory.ctypes.data % _ALIGNED
    copy: Array = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


def _check_twins(arrays: Arrays, twins: Sequence[tuple[str, str]]) -> None:
    """Bytes, not values: NaN is the same as NaN here, and 0.0 is not -0.0."""
    for one, other in twins:
        a, b = arrays[one], arrays[other]
        same = a.shape == b.shape
        if same:
            same = a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes()
        if not same:
            text = f"inputs {one!r} and {other!r} are the same tensor of the model: give them the same value"
            raise RunFailed("InvalidInput", text)


def _as_array(value: Any, dtype: "np.dtype[Any]") -> Array:
    """TensorFlow gives a scalar as a number or `bytes`; numpy's own string type would drop trailing NULs."""
    return value if isinstance(value, np.ndarray) else np.asarray(value, dtype)

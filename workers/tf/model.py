"""A loaded model: what it offers, and how each of its signatures is run."""

import logging
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from pool.wire.signatures import ModelInfo, Refused, TensorSpec
from pool.wire.tensors import DTYPES, Array
from pool.wire.worker_messages import ModelSettings
from workers.tf.callables import Callables
from workers.tf.errors import of_a_run
from workers.tf.reachable import ReachableOps
from workers.tf.signature_defs import BoundSignature
from workers.tf.statefulness import blocks_its_thread, uses_references, writes_references, writes_state

__all__ = ["TensorFlowModel"]

logger = logging.getLogger("workers.tf")


@dataclass(frozen=True, slots=True)
class _Plan:
    """How to run a signature.

    `tensors`: what to feed, each tensor once though several inputs may name it. `references`: an output may be
    the buffer of a reference variable.
    """

    bound: BoundSignature
    tensors: tuple[str, ...]
    stateful: bool
    references: bool
    own_threads: bool

    def fetches(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """Each tensor once, though several outputs may be the same; without those that are fed.

        In an order of their own: the same outputs asked for in another order are no other callable.
        """
        asked = {self.bound.fetches[output] for output in outputs}
        return tuple(sorted(asked.difference(self.tensors)))


class TensorFlowModel:
    """A `workers.backend.Model` over a Session that has the model loaded. Safe from several threads.

    Making it prepares one callable for each signature with all its outputs; raises what TensorFlow raises.
    """

    def __init__(
        self,
        settings: ModelSettings,
        session: Any,
        bound: Mapping[str, BoundSignature],
        reachable: ReachableOps,
    ) -> None:
        self._session = session
        self._callables = Callables(session)
        ops = {name: reachable.from_tensors(signature.fetches.values()) for name, signature in bound.items()}
        self._plans = {name: _plan(signature, ops[name]) for name, signature in bound.items()}
        self._writes_references = any(map(writes_references, ops.values()))
        self._writing = threading.Lock()
        for plan in self._plans.values():
            fetches = plan.fetches(tuple(plan.bound.fetches))
            if fetches:
                self._callables.prepare(plan.tensors, fetches, plan.own_threads)
        self.info = ModelInfo(
            name=settings.name,
            path=settings.path,
            signatures={name: signature.signature for name, signature in bound.items()},
            stateful=any(plan.stateful for plan in self._plans.values()),
        )

    def run(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Array]:
        """Runs one signature; see `workers.backend.Model.run`.

        A signature that may keep or overwrite what it is fed gets a copy of it. Waits for another run of the
        model only where both use reference variables, which a signature of the model writes.
        """
        plan = self._plans[signature]
        values = _by_tensor(plan, feeds)
        if plan.stateful:
            values = {tensor: array.copy() for tensor, array in values.items()}
        fetches = plan.fetches(outputs)
        if fetches:  # TensorFlow refuses a call for nothing, as one for outputs that are inputs would be
            values.update(zip(fetches, self._fetch(plan, fetches, values), strict=True))
        return {
            output: _as_array(values[plan.bound.fetches[output]], plan.bound.signature.outputs[output])
            for output in outputs
        }

    def run_plainly(self, signature: str, feeds: Mapping[str, Array], outputs: Sequence[str]) -> dict[str, Any]:
        """What a program without a pool would do, to compare with: `Session.run`. Raises `Refused`, as `run` does."""
        bound = self._plans[signature].bound
        fetches = {output: bound.fetches[output] for output in outputs}
        try:
            found: dict[str, Any] = self._session.run(fetches, {bound.feeds[name]: feeds[name] for name in feeds})
        except Exception as error:  # as in `_fetch`
            raise of_a_run(error) from error
        return found

    def _fetch(self, plan: _Plan, fetches: Sequence[str], values: Mapping[str, Array]) -> list[Any]:
        # The run of another lane may write the buffer that this one fetched, until it is copied. No lock without
        # need: runs that hand each other values through a queue wait for each other.
        alone = self._writing if self._writes_references and plan.references else nullcontext()
        try:
            call = self._callables.get(plan.tensors, fetches, plan.own_threads)
            with alone:
                results = call(*(values[tensor] for tensor in plan.tensors))
                if self.info.stateful:
                    results = [result.copy() if isinstance(result, np.ndarray) else result for result in results]
        except Exception as error:  # of the model's own making, by what it computes or refuses
            raise of_a_run(error) from error
        return results

    def warm_up(self) -> None:
        """Runs each signature once on zeros and empty strings, unknown axes being 1.

        Skips what would change the model's state, and inputs of unknown rank. What the model makes of zeros says
        nothing about what it makes of data, so nothing is raised but `ProcessUnusable`.
        """
        for name, plan in self._plans.items():
            inputs = plan.bound.signature.inputs
            if plan.stateful or any(spec.shape is None for spec in inputs.values()):
                continue
            try:
                self.run(name, {key: _blank(spec) for key, spec in inputs.items()}, tuple(plan.bound.fetches))
            except Refused as error:
                logger.debug("model %s: warming up signature %r: %s", self.info.name, name, error)


def _plan(bound: BoundSignature, ops: frozenset[str]) -> _Plan:
    return _Plan(
        bound=bound,
        tensors=tuple(dict.fromkeys(bound.feeds.values())),
        stateful=writes_state(ops),
        references=uses_references(ops),
        own_threads=blocks_its_thread(ops),
    )


def _by_tensor(plan: _Plan, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Raises `Refused` if two inputs that are one tensor of the graph are given different values."""
    values: dict[str, Array] = {}
    for name, tensor in plan.bound.feeds.items():
        array = feeds[name]
        if tensor in values and not _same(values[tensor], array):
            twins = " and ".join(repr(twin) for twin, other in plan.bound.feeds.items() if other == tensor)
            raise Refused(f"inputs {twins} are the same tensor of the model: give them the same value")
        values[tensor] = array
    return values


def _same(one: Array, other: Array) -> bool:
    if one is other:
        return True
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    # Bytes, not values: NaN is the same as NaN here, and 0.0 is not -0.0.
    return bool(np.array_equal(one, other)) if one.dtype.hasobject else one.tobytes() == other.tobytes()


def _blank(spec: TensorSpec) -> Array:
    shape = tuple(1 if axis < 0 else axis for axis in spec.shape or ())
    dtype = DTYPES[spec.dtype]
    return np.full(shape, b"", dtype) if dtype.hasobject else np.zeros(shape, dtype)


def _as_array(value: Any, spec: TensorSpec) -> Array:
    """TensorFlow gives a scalar as a number or `bytes`; numpy's own string type would drop trailing NULs."""
    if isinstance(value, np.ndarray):
        return value
    return np.asarray(value, DTYPES[spec.dtype])

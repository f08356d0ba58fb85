"""How a signature is run, as far as its graph says; and run for some of its outputs, all worked out beforehand."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from pool.wire.signatures import Refused
from pool.wire.tensors import DTYPES, Array
from workers.tf.adoption import bears_change
from workers.tf.callables import Callables, Prepared
from workers.tf.errors import of_a_run
from workers.tf.feeds import private, same
from workers.tf.signature_defs import BoundSignature
from workers.tf.statefulness import blocks_its_thread, uses_references, writes_state

__all__ = ["Plan", "Route", "as_array", "plan_of"]


@dataclass(frozen=True, slots=True)
class Plan:
    """`tensors`: what to feed, each tensor once though several inputs may name it.

    `stateful`: may keep or overwrite what it is fed, and change what later runs return. `references`: an output may be
    a buffer that another run writes. `own_threads`: run in TensorFlow's threads, else in the caller's. `bears_change`:
    see `workers.tf.adoption`.
    """

    bound: BoundSignature
    tensors: tuple[str, ...]
    stateful: bool
    references: bool
    own_threads: bool
    bears_change: bool

    def fetches(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """Each tensor once, though several outputs may be the same; without those that are fed.

        In an order of their own: the same outputs asked for in another order are no other callable.
        """
        asked = {self.bound.fetches[output] for output in outputs}
        return tuple(sorted(asked.difference(self.tensors)))

    @property
    def all_fetches(self) -> tuple[str, ...]:
        return self.fetches(tuple(self.bound.fetches))


def plan_of(bound: BoundSignature, ops: frozenset[str]) -> Plan:
    """`ops`: the types of all that a run may execute."""
    return Plan(
        bound=bound,
        tensors=tuple(dict.fromkeys(bound.feeds.values())),
        stateful=writes_state(ops),
        references=uses_references(ops),
        own_threads=blocks_its_thread(ops),
        bears_change=bears_change(ops),
    )


class Route:
    """Safe from several threads."""

    def __init__(
        self, plan: Plan, outputs: Sequence[str], callables: Callables, alone: AbstractContextManager[Any] | None
    ) -> None:
        """`alone`: held while a fetched array may be a buffer that another run writes; None where none is."""
        feeds = plan.bound.feeds
        self._fetches = plan.fetches(outputs)
        self._plan = plan
        self._callables = callables
        self._alone = alone
        # An input a tensor, in the tensors' order; and those that are one tensor, which must be given one value.
        names = {tensor: [name for name, other in feeds.items() if other == tensor] for tensor in plan.tensors}
        self._inputs = tuple(twins[0] for twins in names.values())
        self._twins = tuple(twins for twins in names.values() if len(twins) > 1)
        # The rare ones are looked up each time, so that only so many are kept.
        self._call = callables.prepared(plan.tensors, self._fetches, plan.own_threads)
        where = {tensor: index for index, tensor in enumerate(self._fetches)}
        dtypes = {name: DTYPES[spec.dtype] for name, spec in plan.bound.signature.outputs.items()}
        tensors = plan.bound.fetches
        self._outputs = tuple((name, where.get(tensors[name], -1), dtypes[name]) for name in outputs)
        self._fed = {name: names[tensors[name]][0] for name in outputs if tensors[name] not in where}

    def run(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """See `workers.backend.Model.run`."""
        if self._twins:
            self._check_twins(feeds)
        values = [feeds[name] for name in self._inputs]
        if self._plan.stateful:
            values = [private(value) for value in values]
        fetched: Sequence[Any] = ()  # TensorFlow refuses a call for nothing
        if self._fetches:
            plan = self._plan
            try:
                call = self._call or self._callables.get(plan.tensors, self._fetches, plan.own_threads)
                fetched = call(*values) if self._alone is None else self._fetched_alone(call, values, self._alone)
            except Exception as error:  # of the model's own making, by what it computes or refuses
                raise of_a_run(error) from error
        answer = {}
        for name, index, dtype in self._outputs:
            value = feeds[self._fed[name]] if index < 0 else fetched[index]
            answer[name] = value if type(value) is np.ndarray else as_array(value, dtype)
        return answer

    def _fetched_alone(
        self, call: Prepared, values: Sequence[Array], alone: AbstractContextManager[Any]
    ) -> Sequence[Any]:
        with alone:
            return [result.copy() if isinstance(result, np.ndarray) else result for result in call(*values)]

    def _check_twins(self, feeds: Mapping[str, Array]) -> None:
        for twins in self._twins:
            if not all(same(feeds[one], feeds[other]) for one, other in pairwise(twins)):
                named = " and ".join(map(repr, twins))
                raise Refused(f"inputs {named} are the same tensor of the model: give them the same value")


def as_array(value: Any, dtype: "np.dtype[Any]") -> Array:
    """TensorFlow gives a scalar as a number or `bytes`; numpy's own string type would drop trailing NULs."""
    return value if type(value) is np.ndarray else np.asarray(value, dtype)

"""How a signature is run, as far as its graph says."""

from collections.abc import Sequence
from dataclasses import dataclass

from workers.tf.adoption import bears_change
from workers.tf.signature_defs import BoundSignature
from workers.tf.statefulness import blocks_its_thread, uses_references, writes_state

__all__ = ["Plan", "plan_of"]


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

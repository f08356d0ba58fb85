"""Which machines of the cluster get a pool. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Node", "Wanted", "choose"]


@dataclass(frozen=True, slots=True)
class Node:
    """A machine that Ray says is alive. `host`: its address."""

    id: str
    host: str
    gpus: int
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Wanted:
    """As in `[cluster]`."""

    nodes: int | Literal["all"]
    gpus: int | Literal["all"]
    labels: Mapping[str, str]

    def gpus_on(self, node: Node) -> int:
        """So many are reserved there."""
        return node.gpus if self.gpus == "all" else self.gpus

    def fits(self, node: Node) -> bool:
        enough = node.gpus >= (1 if self.gpus == "all" else self.gpus)
        return enough and all(node.labels.get(label) == text for label, text in self.labels.items())


def choose(nodes: Sequence[Node], placed: Collection[str], wanted: Wanted) -> list[Node]:
    """Those that are to have a pool. One that has it keeps it; else the ids decide, so each keeper says the same."""
    fit = sorted((node for node in nodes if wanted.fits(node)), key=lambda node: (node.id not in placed, node.id))
    return fit if wanted.nodes == "all" else fit[: wanted.nodes]

"""What `Client.placement` tells: what of a model ran where, by a traced run of each signature."""

from collections.abc import Mapping
from dataclasses import dataclass

from pool.wire.codec import Record

__all__ = ["PlacedNode", "PlacedRule", "PlacedSignature", "Placement", "RanElsewhere"]


@dataclass(frozen=True, slots=True)
class PlacedNode(Record):
    """`function` is "" for a node of the graph itself; `rule` is the number, from 0, of the rule that moved it."""

    node: str
    function: str
    op: str
    device: str
    rule: int | None


@dataclass(frozen=True, slots=True)
class PlacedSignature(Record):
    """`nodes` are in the order in which they began to run; `why`: why it was not run, or None."""

    nodes: tuple[PlacedNode, ...]
    why: str | None


@dataclass(frozen=True, slots=True)
class RanElsewhere(Record):
    """A node that a rule has moved, and the other device that it ran on."""

    node: str
    device: str


@dataclass(frozen=True, slots=True)
class PlacedRule(Record):
    """A rule of `layer_devices`: `absent` nodes were to run and did not, as what TensorFlow folds away.

    `kept` is None where nothing of it was to run.
    """

    layers: str
    device: str
    matched: int
    ran: int
    elsewhere: tuple[RanElsewhere, ...]
    absent: tuple[str, ...]
    kept: bool | None


@dataclass(frozen=True, slots=True)
class Placement(Record):
    """`slot` and `device`: whose worker ran it; `devices`: what TensorFlow has there."""

    model: str
    slot: int
    device: str
    devices: tuple[str, ...]
    signatures: Mapping[str, PlacedSignature]
    rules: tuple[PlacedRule, ...]

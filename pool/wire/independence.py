"""Whether each row of a signature is computed by itself: what workers find out, and what the pool makes of it.

    worker                                             pool
      │ READY, with a Trial a signature ──────────────► │  TRIED where made-up or recorded rows agreed
      │ ROWS_COMPARED, a real job run both ways ──────► │  PROVEN when enough agreed, DEPENDENT when one did not
      │ ◄──────────────────────────────── ROWS_JUDGED  │  also in WELCOME, so that a new worker need not begin anew

Rows are joined, cut and padded only where they are proven independent, or where the user vouches for it.
"""

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

__all__ = ["Batching", "Judgement", "RowsCompared", "RowsJudged", "Trial"]


class Batching(Enum):
    """Which jobs of a model are joined, cut or padded; the configuration's `batching`."""

    AUTO = "auto"  # those of signatures whose rows are proven independent
    ALWAYS = "always"  # the user vouches for it
    OFF = "off"


class Judgement(Enum):
    """What is known of the rows of a signature, for these files and this version of TensorFlow."""

    TRIED = "made-up or recorded rows gave the same alone and together when the worker warmed up"
    PROVEN = "rows of enough real jobs gave the same, too"
    DEPENDENT = "a row gave something else when other rows were with it"


@dataclass(frozen=True, slots=True)
class Trial:
    """What a worker found of a signature when it warmed up.

    `outputs`: those whose rows agreed, alone, in pairs and in full batches, by name. `differs`: what did not agree;
    `untried`: why nothing could be tried. At most one of the two is set.
    """

    outputs: tuple[str, ...] = ()
    differs: str = ""
    untried: str = ""


@dataclass(frozen=True, slots=True)
class RowsCompared:
    """A worker ran rows of a real job in other company, and compared these outputs.

    `identity`: the `ModelInfo`'s. `differs`: what did not agree, or "". `distinct`: whether rows of other values were
    in that company.
    """

    kind: ClassVar[int] = 42
    model: str
    identity: str
    signature: str
    outputs: tuple[str, ...]
    differs: str
    distinct: bool


@dataclass(frozen=True, slots=True)
class RowsJudged:
    """What the pool makes of a signature. `outputs`: what is TRIED or PROVEN; DEPENDENT counts for all of them."""

    kind: ClassVar[int] = 43
    model: str
    identity: str
    signature: str
    outputs: tuple[str, ...]
    judgement: Judgement

"""A fault in the core on order: it raises once it was told of something, before anything of that is done.

Python imports this first where $PYTHONPATH has its folder. $PLANTED_FAULT says of what, and the how manieth time:
`JobArrived:3` is the third job.
"""

import itertools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PLANTED = "PLANTED_FAULT"


class PlantedFault(Exception):
    """It was wanted."""


def environ_for(fault: str) -> Mapping[str, str]:
    """What a pool needs for its core to have the fault."""
    return {"PYTHONPATH": str(Path(__file__).parent), PLANTED: fault}


def plant(core: Any, fault: str) -> None:
    """Into a `Machine`, or into its class."""
    kind, _, count = fault.partition(":")
    times = itertools.count(1)

    def after(name: str, called: str) -> None:
        original = getattr(core, name)

        def both(*arguments: Any) -> None:
            original(*arguments)
            told = called or type(arguments[-2]).__name__  # `handle(event, now)`
            if told == kind and next(times) == int(count):
                raise PlantedFault("as ordered, after the core was told and before anything was done")

        setattr(core, name, both)

    after("handle", "")
    after("arrived", "JobArrived")
    after("batch_done", "BatchDone")


if os.environ.get(PLANTED) and "pool" in sys.orig_argv:
    from pool.core import Machine

    plant(Machine, os.environ[PLANTED])

"""All checks in turn. One that breaks down is a line; the others go on."""

import traceback
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from pool.doctor.cards import Cards
from pool.doctor.finding import FAILED, Finding
from pool.doctor.machine import CHECKS, Machine

__all__ = ["examine"]


def examine(machine: Machine, begin: Callable[[str], None] = lambda _: None) -> Iterator[Finding]:
    """`begin` is told what is checked next. Each check ends in bounded time; all take a minute where all is well."""
    cards = Cards(machine)
    checks: dict[str, Callable[[], Iterable[Finding]]] = {
        **{check.__name__.replace("_", " "): partial(check, machine) for check in CHECKS},
        "NVML": cards.nvml,
        "TensorFlow": cards.tensorflow,
        "a worker on each GPU": cards.one_each,
        "two workers side by side": cards.two_each,
    }
    for name, check in checks.items():
        begin(name)
        try:
            yield from check()
        except Exception as error:
            seen = f"this check broke down: {type(error).__name__}: {error}"
            yield Finding(name, FAILED, seen, "send the text of `pool doctor --report FILE`", traceback.format_exc())

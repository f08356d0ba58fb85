"""What a pool says that a model takes, asked before a value from the command line is read."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from rich.status import Status
from rich.text import Text

from pool import Client
from pool.cli.pools import answers
from pool.errors import DeadlineExceeded, PoolError
from pool.terminal import progress_console
from pool.wire.readiness import slots_of
from pool.wire.records import SignatureInfo, Slot, Tensor, said_of
from pool.wire.signatures import DEFAULT_SIGNATURE

__all__ = ["Inputs", "chosen_signature", "inputs_of"]

Inputs = Mapping[str, Tensor]

LOOK_S = 0.25
_ON_THE_WAY = frozenset({"STARTING", "LOADING", "BACKOFF"})


def inputs_of(
    client: Client, model: str, signature: str | None, timeout_s: float, version: int | str | None = None
) -> tuple[str, Inputs] | None:
    """The signature's name and its inputs; None where the pool's own error will say why there are none.

    A model that is still being loaded is waited for, `timeout_s` at most: a pool that has just been started is asked
    for something at once; a terminal shows what it is doing. Raises `DeadlineExceeded` when it takes longer.
    """
    deadline = time.monotonic() + timeout_s
    with ExitStack() as stack:
        spinner: Status | None = None
        while True:
            described = said_of(client.models(), model, version)
            if described is None or described.signatures:
                return None if described is None else chosen_signature(described.signatures, signature)
            holders = _holders(client, model)
            if not any(slot.state in _ON_THE_WAY for slot in holders):
                return None
            doing = "; ".join(f"slot {slot.slot}: {slot.state} {slot.doing}".rstrip() for slot in holders)
            if not time.monotonic() < deadline:  # a NaN ends it too
                raise DeadlineExceeded(f"model {model} was not loaded within {timeout_s:g} s ({doing})")
            if spinner is None:
                spinner = stack.enter_context(progress_console().status(""))
            spinner.update(Text(f"waiting for {model} to be loaded ({doing})"))
            # Nothing tells a client of a change in the pool, so it is asked again.
            time.sleep(LOOK_S)


def _holders(client: Client, model: str) -> list[Slot]:
    """Of all pools that answer."""
    told = [found for _, found in answers(client, lambda each: each.status())]
    return [slot for found in told if not isinstance(found, PoolError) for slot in slots_of(found, model)]


def chosen_signature(signatures: Mapping[str, SignatureInfo], asked: str | None) -> tuple[str, Inputs] | None:
    """The one that the worker will choose: the asked one, `serving_default`, or the only one."""
    only: Sequence[str] = list(signatures) if len(signatures) == 1 else [DEFAULT_SIGNATURE]
    name = only[0] if asked is None else asked
    if name not in signatures:
        return None
    return name, signatures[name].inputs

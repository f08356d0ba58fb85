"""A scene of those who lie about their calls: too many, too large, numbers twice, of nothing, and forgotten."""

import contextlib
import random
from dataclasses import replace

from attacker.extremes import one_of
from attacker.jobs import CANNOT, Job, doubled
from attacker.ledger import Ledger, refused
from attacker.peer import Dropped, Peer, joined
from attacker.target import Stage
from pool.wire import client_messages as wire
from pool.wire.message import Message
from support.asked import Asked

__all__ = ["registering"]

MOST_CALLS = 1024
CALLS_BYTES = 4 << 20


def registering(rng: random.Random, stage: Stage) -> int:
    with (
        stage.hoarding,
        joined(stage.context, one_of(rng, (stage.target.local, stage.target.remote))) as peer,
        contextlib.suppress(Dropped),
    ):
        peer.open()
        one_of(rng, (_many, _large, _again, _unknown, _forgotten))(rng, peer)
        job = doubled(rng, 1 << 50, 1)
        peer.say(wire.Close())
        peer.open()
        ledger = Ledger(peer)
        ledger.submit(job.submit, job.payload, job.owed)
        ledger.settle()
    return peer.sent


def _said(peer: Peer, job: Job, call: int, *, registers: bool = True, **fields: object) -> Message | wire.Result:
    """What is heard of it, alone."""
    asked: Asked = replace(job.submit, **fields)  # type: ignore[arg-type]  # as the caller says
    table, *buffers = job.payload
    peer.say(asked.submit(table, call, registers), buffers)
    while isinstance(heard := peer.hear(), wire.Released):
        pass
    return heard.results[0] if isinstance(heard, wire.Results) else heard


def _many(rng: random.Random, peer: Peer) -> None:
    """More than a client may have: one that is forgotten makes room for one."""
    for number in range(MOST_CALLS):
        _said(peer, doubled(rng, number, 1), number + 1, device=f"none {number}")
    judge = refused(CANNOT + f"{MOST_CALLS + 1} calls; the pool keeps at most {MOST_CALLS}")
    for number in range(MOST_CALLS, MOST_CALLS + 5):
        judge(_said(peer, doubled(rng, number, 1), number + 1), (), None)
    peer.say(wire.Forget(rng.randrange(1, MOST_CALLS + 1)))
    heard = _said(peer, doubled(rng, 2000, 1), 2000)
    assert isinstance(heard, wire.Result), heard
    judge(_said(peer, doubled(rng, 2001, 1), 2001), (), None)


def _large(rng: random.Random, peer: Peer) -> None:
    """Names without end, of which so many bytes are kept."""
    outputs = tuple(f"{number:0990}" for number in range(60))
    told = 0
    while not told:
        for number in range(peer.sent, peer.sent + 20):
            heard = _said(peer, doubled(rng, number, 1), number + 1, outputs=(str(number), *outputs))
            assert isinstance(heard, wire.Failure), heard
            told += f"at most {CALLS_BYTES} of one client" in heard.text
        assert peer.sent * 60 * 990 < 4 * CALLS_BYTES, "all of it was kept"


def _again(rng: random.Random, peer: Peer) -> None:
    """A number that was used, or one below it: what it was first it stays."""
    call = one_of(rng, (5, 1 << 20, (1 << 32) - 1))
    assert isinstance(_said(peer, doubled(rng, 1, 1), call), wire.Result)
    judge = refused(CANNOT + f"call .* after call {call}")
    for job in range(2, 6):
        judge(_said(peer, doubled(rng, job, 1), one_of(rng, (call, call - 1, 0)), signature="fail"), (), None)
    again = _said(peer, doubled(rng, 9, 1), call, registers=False)
    assert isinstance(again, wire.Result), again


def _unknown(rng: random.Random, peer: Peer) -> None:
    """Numbers that nobody has registered, for ever; one is."""
    assert isinstance(_said(peer, doubled(rng, 1 << 40, 1), 3), wire.Result)
    for job in range(one_of(rng, (10, 3000))):
        heard = _said(peer, doubled(rng, job, 1), one_of(rng, (0, 1, 7, (1 << 32) - 1)), registers=False)
        assert heard == wire.Unregistered(job), heard


def _forgotten(rng: random.Random, peer: Peer) -> None:
    """What is queued or runs while its call is forgotten is answered as if it were not."""
    ledger = Ledger(peer)
    peer.numbers = None
    for number in range(30):
        job = doubled(rng, number, model="slow")
        ledger.submit(job.submit, job.payload, job.owed)
        if rng.random() < 0.5:
            for call in range(rng.randrange(1 << 16), 1 << 16, 997):
                peer.say(wire.Forget(call))
    for call in range(20_000):
        peer.say(wire.Forget(call))
    ledger.settle()

"""Scenes of those who take what they can: all of the queue, all that is lent, answers that they never read."""

import contextlib
import random
import select

import numpy as np

from attacker.extremes import one_of
from attacker.jobs import TIMEOUT_S, doubled
from attacker.ledger import Ledger, Owed, answered
from attacker.memory import introduced, request
from attacker.peer import GIVEN_UP, Dropped, joined
from attacker.target import CLIENT_MEMORY_BYTES, MEMORY_BYTES, QUEUE_BYTES, QUEUE_JOBS, Stage
from attacker.zmtp import Link, knocked, message
from pool.client.payload import encode_call
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from pool.wire.frames import NO_INSTANCE, encode
from support.asked import Asked, Numbers

__all__ = ["borrowing_all", "flooding", "hoarding"]

TRIES = 10
QUIET_S = 2.0
TEXT_BYTES = 32 << 10
UNREAD_BYTES = 64 << 20  # more than may wait for one reader, in its pipe and behind it


def flooding(rng: random.Random, stage: Stage) -> int:
    """More jobs, or more bytes, than the queue takes of all clients together: each is answered, some with that."""
    with (
        stage.hoarding,
        joined(stage.context, one_of(rng, (stage.target.local, stage.target.remote))) as peer,
        contextlib.suppress(Dropped),  # it has asked for more than it could read
    ):
        peer.open()
        peer.numbers = Numbers()
        ledger = Ledger(peer)
        if rng.random() < 0.5:
            count, signature, given = 3 * QUEUE_JOBS, "double", np.ones(1, np.float32)
        else:
            count, signature = 3 * QUEUE_BYTES // (8 * TEXT_BYTES), "text"
            given = np.array([b"x" * TEXT_BYTES] * 8, object)
        rows, payload = encode_call("slow", given)
        for number in range(count):
            submit = Asked(number, "slow", signature, None, rows, TIMEOUT_S, 0, None, 0, False)
            ledger.submit(submit, payload, Owed(answered))  # type: ignore[arg-type]  # nothing of it is lent
            if number in (2 * QUEUE_JOBS, count - 1):
                _newcomer(rng, stage)
        cancels = rng.random() < 0.5
        for number in range(count) if cancels else ():
            ledger.cancel(number)
        if rng.random() < 0.3:
            return peer.sent
        ledger.settle()
        assert ledger.failed[Fault.OVERLOADED], "all of it was taken in"
    return peer.sent


def _newcomer(rng: random.Random, stage: Stage) -> None:
    """However many jobs others have in the pool, there is room for one of somebody who has none."""
    with joined(stage.context, stage.target.local) as peer:
        peer.open()
        ledger = Ledger(peer)
        job = doubled(rng, 1, 1)
        ledger.submit(job.submit, job.payload, job.owed)
        ledger.settle()
        assert ledger.right == 1, ledger.failed


def borrowing_all(rng: random.Random, stage: Stage) -> int:
    """As many clients as it takes ask for all there is."""
    with contextlib.ExitStack() as stack:
        lent = 0
        for _ in range(MEMORY_BYTES // CLIENT_MEMORY_BYTES + 1):
            peer = stack.enter_context(joined(stage.context, stage.target.local))
            link = stack.enter_context(introduced(stage, peer))
            loan = request(link, 1, one_of(rng, ((1 << 64) - 1, 1 << 40, CLIENT_MEMORY_BYTES)))
            lent += 0 if loan is None else loan.size_bytes
        assert lent <= MEMORY_BYTES, f"{lent} bytes are lent"
        said = stage.status().lent_bytes
        assert lent <= said <= MEMORY_BYTES, f"{lent} bytes are lent, and the pool says {said}"
        if rng.random() < 0.5:
            peer.say(wire.Close())
    return 2 * (MEMORY_BYTES // CLIENT_MEMORY_BYTES + 1)


def hoarding(rng: random.Random, stage: Stage) -> int:
    """Who asks and asks, and does not read what it is told, is dropped, and told that."""
    with stage.hoarding, knocked(stage.target, local=True) as link:
        link.shake()
        link.connection.sendall(message(encode(wire.Open("a hoarder"), NO_INSTANCE)))
        instance = link.read_message()[0][6:14]
        hoard = _pings if rng.random() < 0.5 else _echoes
        sent = 0
        for _ in range(TRIES):
            sent += hoard(link, instance, stage)
            if _is_told(link, encode(GIVEN_UP, instance)):
                return sent
        raise AssertionError(f"{sent} messages later it has not been told that it was dropped")


def _is_told(link: Link, what: list[bytes]) -> bool:
    """Reads what there is. Another may have been dropped, one of before whose messages were read only now."""
    while select.select([link.connection], [], [], QUIET_S)[0]:
        if link.read_message() == what:
            return True
    return False


def _given_up(stage: Stage) -> int:
    return int(stage.status().refused.get(GIVEN_UP.text, 0))


def _pings(link: Link, instance: bytes, stage: Stage) -> int:
    """Answers without a byte of their own."""
    before, sent = _given_up(stage), 0
    while _given_up(stage) == before:
        assert sent < 200_000, "none of so many answers was one too many"
        link.connection.sendall(message(encode(wire.Ping(), instance)) * 5000)
        sent += 5000
    return sent


def _echoes(link: Link, instance: bytes, stage: Stage) -> int:
    """Large answers, as quickly as they come."""
    before, sent = _given_up(stage), 0
    given = np.zeros((1, 1 << 17), np.float32)
    rows, payload = encode_call("echo", given)
    numbers = Numbers()
    while (status := stage.status()).refused.get(GIVEN_UP.text, 0) == before:
        assert status.unread_bytes <= UNREAD_BYTES, f"{status.unread_bytes} bytes wait for who does not read"
        for _ in range(10 if status.queue.jobs < 20 else 0):
            sent += 1
            submit = Asked(sent, "echo", None, None, rows, TIMEOUT_S, 0, None, 0, False)
            link.connection.sendall(message(list(map(bytes, numbers.said(submit, payload, instance)))))
        assert sent * given.nbytes < 4 * UNREAD_BYTES, "none of so many answers was one too many"
    return sent

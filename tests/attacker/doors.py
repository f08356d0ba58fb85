"""Scenes at the pool's doors: connections without end, names that a peer has chosen, and who says it is a worker."""

import contextlib
import itertools
import random
import socket
import struct

from attacker.extremes import number, one_of
from attacker.jobs import doubled
from attacker.ledger import Ledger
from attacker.peer import joined
from attacker.target import Stage
from attacker.zmtp import greeting, knocked, message, ready
from pool.wire import client_messages as wire
from pool.wire.codec import pack
from pool.wire.frames import MAGIC, NO_INSTANCE, VERSION, decode, encode
from pool.wire.worker_messages import WORKER_MESSAGES, Hello
from support.asked import framed

__all__ = ["at_the_workers_door", "naming", "storming"]

SILENCE_S = 0.3
LANES = 64

_own = itertools.count()


def naming(rng: random.Random, stage: Stage) -> int:
    """A peer that has chosen its routing id is refused, whatever it says: the next one with that id would be it."""
    local = rng.random() < 0.5
    chosen = one_of(rng, (b"x", b"given", b"slot:0", rng.randbytes(4) + b"\1", b"\xff" * 255))
    # Nobody else's: libzmq never reads a second peer of one id, not even when the first has gone.
    own = b"%x" % next(_own)
    name = b"a" + chosen[1 : 255 - len(own)] + own
    with joined(stage.context, stage.target.local if local else stage.target.remote, name) as peer:
        for _ in range(3):
            peer.say(wire.Open("by name"))
            told = peer.hear()
            assert isinstance(told, wire.Refusal), f"let in with an id of its own: {told}"
    with knocked(stage.target, local) as link:
        link.shake(b"\0" + rng.randbytes(one_of(rng, (3, 5, 200))))
        link.connection.sendall(message(encode(wire.Open("by name"), NO_INSTANCE)))
        told = decode(wire.CLIENT_MESSAGES, link.read_message()).message
        assert isinstance(told, wire.Refusal), f"let in with an id of its own: {told}"
    return 4


def storming(rng: random.Random, stage: Stage) -> int:
    """Connections that come and go, at each step of getting to know each other; one that stays is served."""
    count = rng.choice((20, 80))
    with joined(stage.context, one_of(rng, (stage.target.local, stage.target.remote))) as peer:
        peer.open()
        ledger = Ledger(peer)
        for turn in range(count):
            with contextlib.suppress(ConnectionError, TimeoutError):
                _come_and_go(rng, stage)
            if turn % 10 == 0:
                job = doubled(rng, turn)
                ledger.submit(job.submit, job.payload, job.owed)
        ledger.settle()
        return peer.sent + count


def _come_and_go(rng: random.Random, stage: Stage) -> None:
    where = one_of(
        rng, (stage.target.path, stage.target.workers.removeprefix("ipc://"), stage.target.shared_memory, "")
    )
    kind = socket.SOCK_SEQPACKET if where == stage.target.shared_memory else socket.SOCK_STREAM
    with socket.socket(socket.AF_UNIX if where else socket.AF_INET, kind) as connection:
        connection.connect(where or ("127.0.0.1", stage.target.port))
        said = greeting() + ready((b"Socket-Type", b"DEALER")) + message(encode(wire.Open("a storm"), NO_INSTANCE))
        if part := said[: one_of(rng, (0, 0, 1, 64, len(said) - 3, len(said)))]:
            connection.sendall(part)
        if rng.random() < 0.5:  # at once, without a word
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def at_the_workers_door(rng: random.Random, stage: Stage) -> int:
    """Who has no secret is told nothing, whatever it says that it is."""
    with joined(stage.context, stage.target.workers) as peer:
        for _ in range(rng.choice((3, 20))):
            kind = one_of(rng, sorted(WORKER_MESSAGES))
            secret = one_of(rng, (b"", bytes(32), rng.randbytes(32), b"x" * 900))
            hello = Hello(
                one_of(rng, (0, 1, number(rng))),
                one_of(rng, (1, 1, number(rng))),
                one_of(rng, (None, rng.randrange(LANES), number(rng))),
                secret,
            )
            frames = one_of(
                rng,
                (
                    encode(hello, NO_INSTANCE),
                    encode(hello, NO_INSTANCE),
                    [MAGIC + bytes((VERSION, kind)) + bytes(8), pack(hello)],
                    framed(hello, NO_INSTANCE, [*[b""] * rng.choice((1, 5000))]),
                    [encode(hello, NO_INSTANCE)[0], b"\x91" * 2000],
                    [b""],
                ),
            )
            peer.push(frames)
        heard = peer.anything(SILENCE_S)
        assert heard is None, f"a stranger was told {heard}"
        return peer.sent

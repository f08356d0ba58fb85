"""Memory that is lent: parts that are not there, are others', are used twice, or are written while they are read."""

import contextlib
import mmap
import os
import random
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from attacker.extremes import number, one_of, outside
from attacker.jobs import CANNOT, Job, doubled
from attacker.ledger import Ledger, Owed, answered, gives, refused
from attacker.peer import ANSWER_S, Peer, joined
from attacker.target import CLIENT_MEMORY_BYTES, LARGE_BYTES, Stage
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.segment import MemoryRequest, attach, receive_grant

__all__ = ["borrowing", "crowded", "introduced", "request", "strangers"]

SEGMENT_BYTES = 4 << 20  # at least
MOST_STRANGERS = 64
SOUND = slice(8 * LARGE_BYTES, 12 * LARGE_BYTES)  # what the client leaves alone; before it, it scribbles


@dataclass(frozen=True, slots=True)
class Loan:
    """`others`: numbers of segments that its client has besides."""

    segment: int
    memory: mmap.mmap
    others: frozenset[int] = frozenset()

    @property
    def size_bytes(self) -> int:
        return len(self.memory)


@contextlib.contextmanager
def linked(stage: Stage) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
        link.connect(stage.target.shared_memory)
        link.settimeout(ANSWER_S)  # not before: a queue that is full would be an error then
        yield link


@contextlib.contextmanager
def introduced(stage: Stage, peer: Peer) -> Iterator[socket.socket]:
    """The pool knows whose link it is. Not while somebody crowds: the oldest of those without a ticket is closed."""
    peer.open()
    with contextlib.ExitStack() as stack:
        with stage.crowding:
            link = stack.enter_context(linked(stage))
            link.send(peer.ticket)
            assert request(link, (1 << 64) - 1, (1 << 64) - 1) is None
        yield link


def request(link: socket.socket, least_bytes: int, most_bytes: int) -> Loan | None:
    """None where the pool lends nothing; it must say so."""
    link.send(MemoryRequest(least_bytes, most_bytes).pack())
    with receive_grant(link) as received:
        assert received is not None, "a request was not answered"
        grant, fd = received
        if fd is None:
            return None
        assert grant.size_bytes >= max(1, least_bytes), f"{grant} for {least_bytes} to {most_bytes}"
        return Loan(grant.segment, attach(fd, grant.size_bytes))


def borrowing(rng: random.Random, stage: Stage) -> int:
    with joined(stage.context, stage.target.local) as peer, introduced(stage, peer) as link:
        loan = _all_there_is(rng, link)
        if loan is None:  # others have it
            return peer.sent
        stage.lent.append(loan.size_bytes)
        loan.memory[SOUND] = np.arange((SOUND.stop - SOUND.start) // 4, dtype=np.float32).tobytes()
        ledger = Ledger(peer, lambda offset, size: memoryview(loan.memory)[offset : offset + size])
        for turn in range(rng.choice((5, 30))):
            job = one_of(rng, (_good, _good, _beyond, _beyond, _others, _clumsy, _scribbled))(rng, turn, loan)
            ledger.submit(job.submit, job.payload, job.owed)
            if rng.random() < 0.1:
                ledger.cancel(job.submit.job)
            elif rng.random() < 0.2:
                ledger.again(job.submit, job.payload)
            loan.memory[rng.randrange(SOUND.start)] = rng.randrange(256)
        leaves = rng.random()
        if leaves < 0.2:
            return peer.sent  # with jobs that run
        if leaves < 0.4:
            link.close()  # the pool believes that it is gone
            return peer.sent
        ledger.settle()
        return peer.sent


def _all_there_is(rng: random.Random, link: socket.socket) -> Loan | None:
    """All that one client may have, in one segment or two, and not a byte more."""
    assert request(link, CLIENT_MEMORY_BYTES + 1, one_of(rng, (0, (1 << 64) - 1, 1 << 63))) is None
    loans = [request(link, SEGMENT_BYTES, one_of(rng, (0, SEGMENT_BYTES, (1 << 64) - 1))) for _ in range(3)]
    lent = sum(loan.size_bytes for loan in loans if loan is not None)
    assert lent <= CLIENT_MEMORY_BYTES, f"{lent} bytes are lent to one client"
    first, *rest = loans
    return first and replace(first, others=frozenset(loan.segment for loan in rest if loan is not None))


def _good(rng: random.Random, number: int, loan: Loan) -> Job:
    """Its input lies in one half of the segment and its answer is written into the other; others lie there too.

    Some begin where another ends, which may be in their batch, and some at odd bytes.
    """
    return _lent(
        rng, number, loan, at=SOUND.start + one_of(rng, (0, LARGE_BYTES, 2 * LARGE_BYTES + 1, 3 * LARGE_BYTES + 4))
    )


def _lent(rng: random.Random, number: int, loan: Loan, at: int) -> Job:
    given = np.frombuffer(bytes(loan.memory[at : at + LARGE_BYTES]), np.float32)
    job = doubled(rng, number, len(given))
    room = AnswerSpace(loan.segment, SEGMENT_BYTES // 2 + at, 2 * LARGE_BYTES) if rng.random() < 0.7 else None
    submit = replace(job.submit, lent=(Lent(0, loan.segment, at, LARGE_BYTES),), space=room)
    with np.errstate(all="ignore"):  # what was scribbled there may be anything
        return Job(submit, [job.payload[0], b""], Owed(gives({"y": given * 2})))


def _beyond(rng: random.Random, job: int, loan: Loan) -> Job:
    """Bytes that are not in the segment."""
    made = _lent(rng, job, loan, at=0)
    size = loan.size_bytes
    offset, length = one_of(
        rng,
        (
            (size, LARGE_BYTES),
            (size - 64, LARGE_BYTES),
            (size + 64, LARGE_BYTES),
            (outside(rng, 0, size) % (1 << 64), LARGE_BYTES),
            ((1 << 64) - 64, LARGE_BYTES),
            (0, size + 1),
            (0, outside(rng, 0, size) % (1 << 64)),
        ),
    )
    complaint = refused(CANNOT + "of a segment")
    if rng.random() < 0.5:
        lent = Lent(0, loan.segment, offset, length)
        return replace(made, submit=replace(made.submit, lent=(lent,)), owed=Owed(complaint))
    return replace(
        made, submit=replace(made.submit, space=AnswerSpace(loan.segment, offset, length)), owed=Owed(complaint)
    )


def _others(rng: random.Random, job: int, loan: Loan) -> Job:
    """Memory that is another client's, or nobody's."""
    made = _lent(rng, job, loan, at=0)
    mine = {loan.segment, *loan.others}
    near = [segment for segment in range(max(0, loan.segment - 8), loan.segment + 8) if segment not in mine]
    segment = one_of(rng, near) if rng.random() < 0.7 else one_of(rng, (max(mine) + 1, 1 << 31, (1 << 32) - 1))
    owed = Owed(refused(CANNOT + "is not lent to this client"))
    if rng.random() < 0.5:
        return replace(made, submit=replace(made.submit, lent=(Lent(0, segment, 0, LARGE_BYTES),)), owed=owed)
    return replace(made, submit=replace(made.submit, space=AnswerSpace(segment, 0, LARGE_BYTES)), owed=owed)


def _clumsy(rng: random.Random, job: int, loan: Loan) -> Job:
    """A part in the place of no input, or of the wrong size."""
    made = _lent(rng, job, loan, at=0)
    (lent,) = made.submit.lent
    submit, payload = one_of(
        rng,
        (
            (made.submit, [made.payload[0], b"", b""]),
            (replace(made.submit, lent=(lent, replace(lent, index=1))), [*made.payload, b""]),
            (replace(made.submit, lent=(replace(lent, size_bytes=rng.choice((0, 4, LARGE_BYTES - 4))),)), made.payload),
            (
                replace(made.submit, lent=tuple([replace(lent, index=index) for index in range(512)])),
                [made.payload[0], *[b""] * 512],
            ),
        ),
    )
    return Job(submit, payload, Owed(refused(CANNOT)))


def _scribbled(rng: random.Random, job: int, loan: Loan) -> Job:
    """Its answer is written over its input, and the client writes there too."""
    made = _lent(rng, job, loan, at=0)
    room = one_of(
        rng,
        (
            AnswerSpace(loan.segment, 0, LARGE_BYTES),
            AnswerSpace(loan.segment, 64, 0),
            AnswerSpace(loan.segment, 0, SOUND.start),
        ),
    )
    return replace(made, submit=replace(made.submit, space=room), owed=Owed(answered))


def strangers(rng: random.Random, stage: Stage) -> int:
    """Without a ticket, with another's, with one twice; requests that are none, and descriptors of nobody's."""
    with stage.crowding, contextlib.ExitStack() as stack:
        peer = stack.enter_context(joined(stage.context, stage.target.local))
        peer.open()
        first, second = stack.enter_context(linked(stage)), stack.enter_context(linked(stage))
        first.send(peer.ticket)
        assert request(first, (1 << 64) - 1, number(rng) & ((1 << 64) - 1)) is None
        second.send(peer.ticket)
        assert not second.recv(1), "one ticket is good for one connection"
        third = stack.enter_context(linked(stage))
        third.send(one_of(rng, (b"\0", rng.randbytes(16), peer.ticket + b"\0", peer.ticket[:15], bytes(60_000))))
        assert not third.recv(1), "nothing is lent without a ticket"
        nowhere = os.open("/dev/null", os.O_RDONLY)
        with contextlib.suppress(OSError):
            for _ in range(rng.choice((1, 20))):
                socket.send_fds(first, [MemoryRequest((1 << 64) - 1, 0).pack()], [nowhere] * 50)
                assert request(first, (1 << 64) - 1, 0) is None
        os.close(nowhere)
        first.send(rng.randbytes(one_of(rng, (1, 15, 17, 60, 30_000))))
        while first.recv(64):  # what was request for before
            pass
        peer.before_pong()
        return peer.sent + 4


def crowded(rng: random.Random, stage: Stage) -> int:
    """More connections without a ticket than the pool keeps: it closes the oldest."""
    del rng
    with stage.crowding, contextlib.ExitStack() as stack:
        links = [stack.enter_context(linked(stage)) for _ in range(MOST_STRANGERS + 20)]
        for link in links[:10]:
            assert not link.recv(1), "the pool keeps whoever comes"
    return len(links)

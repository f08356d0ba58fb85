"""Scenes with jobs, garbage and questions: what is understood is answered rightly, and the rest is refused."""

import contextlib
import random
from collections.abc import Iterator
from dataclasses import replace

from attacker.extremes import LAST, LONG, name, number, one_of
from attacker.garbage import garbage, good
from attacker.jobs import CANNOT, any_job, doubled, wrong_job
from attacker.ledger import Ledger, Owed, refused
from attacker.peer import ANSWER_S, Dropped, Peer, joined
from attacker.target import Stage
from pool.wire import client_messages as wire
from pool.wire.faults import Fault
from pool.wire.session_runs import WRITING
from support.asked import Numbers
from support.mutations import mutated

__all__ = ["asking", "babbling", "mangling", "working"]

MOST_WAITING = 16  # questions of one client
NOT_NUMBERS = (LAST + 1, (1 << 64) - 1)


def working(rng: random.Random, stage: Stage) -> int:
    """Good jobs and wrong ones, some twice, some cancelled, with numbers from the first to the last there are."""
    local = rng.random() < 0.5
    with joined(stage.context, stage.target.local if local else stage.target.remote) as peer:
        peer.open()
        ledger = Ledger(peer)
        for turn in range(rng.choice((1, 10, 60))):
            job = (wrong_job if rng.random() < 0.5 else any_job)(rng, _number(rng, turn))
            if job.submit.signature in WRITING and not local:
                job = replace(
                    job, owed=Owed(refused("^a session that runs graphs which write .* the right", Fault.NOT_ALLOWED))
                )
            ledger.submit(job.submit, job.payload, job.owed)
            chance = rng.random()
            if chance < 0.1:
                ledger.cancel(job.submit.job)
            elif chance < 0.15 and job.submit.weight == 1 and job.submit.model != "theirs":
                ledger.again(job.submit, job.payload)
            elif chance < 0.3:  # of what is not there: others' jobs have small numbers, too
                peer.say(wire.Cancel(one_of(rng, (rng.randrange(1 << 12), number(rng), 1 << 50))))
        for wrong in NOT_NUMBERS if rng.random() < 0.5 else ():
            job = doubled(rng, wrong)
            ledger.submit(job.submit, job.payload, Owed(refused(CANNOT + "numbers are from 0")))
        chance = rng.random()
        if chance < 0.1:
            return peer.sent
        if chance < 0.2:
            peer.say(wire.Close())
            peer.open()  # as another
            return peer.sent
        ledger.settle()
        return peer.sent


def _number(rng: random.Random, turn: int) -> int:
    """Far enough from each other for what is cancelled by chance."""
    base = one_of(rng, (1 << 13, (1 << 31) - 3000, (1 << 32) - 3000, 1 << 40))
    last = LAST - (turn + 1) * 1100
    return last if rng.random() < 0.2 else base + turn * 1100


def babbling(rng: random.Random, stage: Stage) -> int:
    """Each message that is none is refused once, and a good one after it is served."""
    with joined(stage.context, one_of(rng, (stage.target.local, stage.target.remote))) as peer:
        peer.open()
        ledger = Ledger(peer)
        for turn in range(rng.choice((5, 40))):
            frames = garbage(rng, peer.instance)
            peer.push(frames)
            heard = [each.message for each in peer.before_pong()]
            assert [type(each) for each in heard] == [wire.Refusal], (heard, frames[:2])
            if turn % 10 == 0:
                job = doubled(rng, turn)
                ledger.submit(job.submit, job.payload, job.owed)
                ledger.settle()
        return peer.sent


def mangling(rng: random.Random, stage: Stage) -> int:
    """Good messages with anything done to them, to clients' endpoints and the workers': nobody knows what is heard."""
    to_workers = rng.random() < 0.2
    where = stage.target.workers if to_workers else one_of(rng, (stage.target.local, stage.target.remote))
    with joined(stage.context, where) as peer:
        if not to_workers:
            peer.open()
        templates = [good(rng, peer.instance) for _ in range(8)]
        numbers, job = Numbers(), doubled(rng, 1)
        jobs = [numbers.said(job.submit, job.payload, peer.instance) for _ in range(3)]
        if not to_workers:
            peer.push(jobs[0])
        templates += jobs[1:]  # of a call that is registered
        for turn in range(rng.choice((5, 20 if to_workers else 200))):
            if turn % 8 == 7 and not to_workers:
                peer.before_pong()  # what libzmq has read for the pool is on nobody's account: a megabyte each
            if frames := mutated(rng, one_of(rng, templates), templates):
                peer.push(frames)
            while not to_workers and peer.heard(0) is not None:
                pass
        return peer.sent


# Each is wrong, wherever it comes from.
WRONG_QUESTIONS = (
    *(("restart", about) for about in ("", "-1", "2", "99", "0 sideways", "٣", "0\0", "1e3", "9" * 5000, " 0")),
    *(("drain", about) for about in ("", "-1", "2", "slot:0", "0x0", "9" * 60)),
    *(("load", about) for about in ("", "{}", "[" * 30_000, '["a"]', '["a", 1]', '[["a"], "b"]', "1" * 5000, "NaN")),
    *(("load", f'["m", "{path}"]') for path in ("", "/nowhere", "\\ud800", "\\u0000", "/" + "x" * 500)),
    *(("unload", about) for about in ("", "none", "\0", "x" * 5000, "rows\n")),
    *(
        ("explain", about)
        for about in ("-1", "slot:2", "slot:-1", "slot:٣", "slot:", "x" * 5000, "9" * 5000, "\x1b[2J")
    ),
    *(("logs", about) for about in ("", "-1", "1e3", "٣", "9" * 5000)),
    *((what, "") for what in ("", "STATUS", "status\0", "x" * 60_000, "__class__")),
)
# Only who is local may; and who comes over TCP asks for what would work.
LOCAL = (
    *(("stop", ""), ("restart", "0"), ("restart", "0 rolling"), ("drain", "1"), ("reload", ""), ("unload", "rows")),
    ("logs", "0"),
)


def asking(rng: random.Random, stage: Stage) -> int:
    local = rng.random() < 0.5
    with joined(stage.context, stage.target.local if local else stage.target.remote) as peer:
        peer.open()
        for what, about in _questions(rng, local):
            request = number(rng)
            peer.say(wire.Ask(request, what, about))
            error = _error(peer, request)
            if what in ("status", "models") or (what, about) == ("explain", ""):
                assert error is None, (what, error)
            else:
                assert error is not None, f"{what} {about!r:.80} was done"
                assert "the pool failed" not in error, error
        if rng.random() < 0.3:
            with stage.hoarding, contextlib.suppress(Dropped):  # it has asked for more than it could read
                _flood(rng, peer)
        return peer.sent


def _questions(rng: random.Random, local: bool) -> Iterator[tuple[str, str]]:
    for _ in range(rng.choice((3, 12))):
        yield one_of(rng, WRONG_QUESTIONS)
        if rng.random() < 0.3:
            yield one_of(rng, ("status", "models", "explain")), ""
        if not local:
            yield one_of(rng, LOCAL)


def _error(peer: Peer, request: int) -> str | None:
    """What is wrong with the question, by the pool's word; None where it was done."""
    heard = peer.heard()
    assert heard is not None, "a question was not answered"
    assert isinstance(heard.message, wire.Answer), heard
    assert heard.message.request == request
    return heard.message.error


def _flood(rng: random.Random, peer: Peer) -> None:
    """More questions than may wait: so many are answered that were asked, and some with that."""
    count = rng.choice((200, 400, 2000))
    what = name(rng)[:LONG]
    errors: dict[int, str | None] = {}
    for request in range(count):
        peer.say(wire.Ask(request, *one_of(rng, (("explain", ""), ("status", ""), (what, what)))))
        while (heard := peer.heard(0 if request < count - 1 else ANSWER_S)) is not None:  # who does not read is dropped
            assert isinstance(heard.message, wire.Answer), heard
            assert heard.message.request not in errors, "answered twice"
            errors[heard.message.request] = heard.message.error
            if len(errors) == count:
                break
    assert len(errors) == count, f"{count - len(errors)} of {count} questions were not answered"
    assert f"{MOST_WAITING} questions of this client already wait for answers" in errors.values(), "all were kept"

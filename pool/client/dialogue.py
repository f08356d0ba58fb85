"""What a client and its pool say to each other, from the first OPEN to CLOSE, through the loss of pools.

The way of a job through the client: one call, write a frame; read a frame, one call.

    run           ─► take ────────┐
    submit, map ─► outbox ─► work ┴─► Dispatch.send ─► _send ─► SUBMIT ─► pool
    who waits ◄─ its ending ◄─ Dispatch.finish ◄─ _understand ◄─ RESULT ◄─┘
                               Dispatch.unpack, fail  ◄─┘     UNPACK, FAILURE

`Driver` says who calls `take` and `work`: a caller who waits, an event loop, or the thread.
"""

import math
import time
from collections import deque
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING

import zmq

if TYPE_CHECKING:
    from pool.client.spread.member import Member

from pool.client.answer_sizes import AnswerSizes
from pool.client.bulk.company import Company
from pool.client.bulk.grain import Grain
from pool.client.channel import Channel
from pool.client.context import SharedContext
from pool.client.dispatch import Dispatch
from pool.client.inquiries import Inquiries
from pool.client.outage import Outage, PoolAway
from pool.client.outstanding import Job, Outstanding, Withdrawal
from pool.client.peer import Peer
from pool.client.pulse import SILENCE_S, Pulse
from pool.client.shared_memory import SharedMemory
from pool.client.sources import Sources
from pool.client.wait import Wait
from pool.errors import Incompatible, NotAllowed, PoolError, PoolUnreachable
from pool.wire import client_messages as wire
from pool.wire.frames import NO_INSTANCE, BadFrame, OtherVersion, decode, encode
from pool.wire.hot import Buffer
from pool.wire.message import Message

__all__ = ["RECEIVE_BURST", "Dialogue", "HandOver"]

LONGEST_S = 3600.0
RECEIVE_BURST = 100  # answers taken before pings, cancellations and new jobs get their turn


class HandOver:
    """What is held here may go to another pool."""


class TornAway(PoolAway):
    """This connection is given up, because nobody knows what of it holds; its pool goes on."""


class Dialogue:
    """Used by whoever has the driver's lock, but for `released`, which any thread may set.

    `is_busy`: somebody is at it. Where a KeyboardInterrupt ended that, it `is_torn`: what stands in the book of jobs
    still holds, anything else may be half done. So this connection ends, and the jobs go to the next one.
    """

    def __init__(
        self,
        peer: Peer,
        name: str,
        outbox: "deque[Job | Withdrawal | Message | HandOver]",
        requests: dict[int, Wait],
        sources: Sources,
        shared_memory: SharedMemory,
        answer_sizes: AnswerSizes,
        grain: Grain,
        host: "Member | None",
        numbers: int,
    ) -> None:
        """`outbox` and `requests` are filled by other threads, which then wake who drives.

        `host`: where its client has several pools. `numbers`: what those of its jobs are greater than.
        """
        outlive = peer.reconnect_timeout_s > 0
        self.jobs = Outstanding(numbers)
        self.released = False  # nobody will submit any more: the talk ends with the last answer
        self.is_busy = self.is_torn = False
        self._dispatch = Dispatch(self.jobs, self._send, self._why_away, outlive, answer_sizes, grain)
        self._company = Company(grain)
        self._host = host
        self._inquiries = Inquiries(requests)
        self._shared_memory = shared_memory
        self._peer = peer
        self._name = name
        self._outbox = outbox
        self._requests = requests
        self._sources = sources
        self._instance = NO_INSTANCE
        self._outage: Outage | None = None
        self._channel: Channel | None = None
        self._closing = False

    def abandon_after_fork(self, error: PoolError) -> None:
        """In a forked child: what it has is the parent's."""
        self.jobs.abandon_after_fork(error)
        if self._channel is not None:
            self._channel.abandon_after_fork()

    # --- what the loop asks -------------------------------------------------------------------------------------

    def begin(self, now: float) -> None:
        """The pool is looked for from now on."""
        self._pulse = Pulse(now)
        self._outage = Outage(self._peer.endpoint, self._peer.connect_timeout_s, now)
        self._outage.next_try += self._peer.pause_s

    def end(self) -> None:
        self._shared_memory.lose_pool()
        self._dispatch.close()
        if self._channel is not None:
            self._channel.close()

    @property
    def is_over(self) -> bool:
        """Whether it was closed, or dropped and waits for nothing any more."""
        return self._closing or (self.released and not self._has_work)

    @property
    def is_steady(self) -> bool:
        """Whether a pool is there, and nothing is to be done but to talk with it."""
        return self._outage is None and not self.is_torn and not self._closing

    def unanswered_s(self, now: float) -> float:
        """For how long the pool has owed an answer to a ping."""
        return self._pulse.unanswered_s(now)

    @property
    def _has_work(self) -> bool:
        return bool(self._outbox or self.jobs.book or self._requests)

    def prepare(self, context: SharedContext, now: float) -> None:
        """Connects, where there is no connection and it is time to look for a pool. Raises `PoolUnreachable`."""
        if self._channel is None and self._outage is not None and now >= self._outage.next_try:
            if self._outage.is_first:
                found = self._peer.find()
                self._outage.looks_at(self._peer.endpoint, self._peer.tried)
                if not found:
                    self._outage.look_again(now)
                    return
            self._peer.check()
            self._channel = context.channel(self._peer.endpoint, self._sources, self._peer.keys)
            self._send(wire.Open(self._name, self._peer.impersonates))

    def wait_s(self, now: float) -> float:
        """How long there is nothing to do if nothing comes; what follows is held against nobody but this process."""
        self._see_gap(now)  # what was sent last may have taken long, or been interrupted
        if self.is_torn or (self._channel is not None and self._channel.look()):
            return 0.0
        seconds = min(max(0.0, self.due() - now), LONGEST_S)
        self._pulse.sleep(now + seconds)
        return seconds

    def sleeps_until(self, instant: float) -> None:
        """Nobody works on it before."""
        self._pulse.sleep(instant)

    def take(self, job: Job) -> None:
        """A caller's: sends it, behind what others have left."""
        assert not self.is_busy, "a signal handler submitted a job while its thread was sending or receiving one"
        self.is_busy = True
        now = time.monotonic()
        queues = bool(self._outbox) or self.is_torn
        if queues:
            self._outbox.append(job)
        try:
            if self.is_torn:
                self._mend()
            self._see_gap(now)
            if queues:
                self._take_outbox()
            else:
                self.jobs.add(job)
                self._dispatch.send(job)
            self._dispatch.send_waiting()
        except PoolAway as away:
            self._lose_pool(away, now)
        self.is_busy = False

    def work(self, ready: Container[int] = (), most: int = RECEIVE_BURST) -> None:
        """All that is to do now; `ready`: the descriptors that have something. Hears so many messages at most."""
        self.is_busy = True
        try:
            now = time.monotonic()
            if self.is_torn:
                self._mend()
            self._see_gap(now)
            if self._channel is not None:
                self._channel.woken(ready)
                self._hear(self._channel, now, most)
            self._take_outbox()
            self._keep_time(now)
            self._dispatch.send_waiting()
            if self._outage is None and self._dispatch.window.wants_ping():
                self._ping(time.monotonic())
        except PoolAway as away:
            self._lose_pool(away, time.monotonic())
        self.is_busy = False

    def _mend(self) -> None:
        """A caller was interrupted in the midst of it: only the book of jobs holds."""
        self.is_torn = False
        self.jobs.mend(self._outbox)
        listens = self._channel is not None and not self._channel.is_cut
        raise TornAway("a caller was interrupted during its exchange with the pool", listens=listens)

    def _hear(self, channel: Channel, now: float, most: int) -> None:
        self._receive(channel, now, most)
        if channel.is_broken:
            if channel.refusal is not None:
                raise channel.refusal
            if channel.hint:
                there = f"{self._peer.endpoint} ({channel.hint})"
                if self._outage is not None:
                    self._outage.looks_at(self._peer.endpoint, there)
                raise PoolAway(f"no pool answers at {there}")
            raise PoolAway(f"the pool at {self._peer.endpoint} went away before it answered")

    # --- time ---------------------------------------------------------------------------------------------------

    def due(self) -> float:
        """When there is something to do by the clock alone."""
        due = math.inf
        if self.jobs.book and (instant := self._dispatch.next_instant()) is not None:
            due = instant
        if self._outage is not None:
            due = min(due, self._outage.until)
            if self._channel is None:
                due = min(due, self._outage.next_try)
        elif self.jobs.book or self._requests:
            due = min(due, self._pulse.next_ping())
        if (instant := self._shared_memory.next_trim()) is not None and instant < due:
            due = instant
        return max(due, self._pulse.judge_from)

    def _see_gap(self, now: float) -> None:
        """A time in which this thread did not run is not held against the pool."""
        gap_s = self._pulse.overslept(now)
        if gap_s:
            if self._outage is not None:
                self._outage.stood_still(gap_s)
            self._dispatch.stood_still(now)

    def _keep_time(self, now: float) -> None:
        if now < self._pulse.judge_from:
            return
        self._dispatch.end_late(now)
        self._shared_memory.trim(now)
        if self._outage is not None:
            self._outage.check(now)
        elif self.jobs.book or self._requests:
            if self._pulse.silent(now):
                silence = f"the pool at {self._peer.endpoint} gave no sign of life for {SILENCE_S:g} s"
                raise PoolAway(silence, listens=True)
            if now >= self._pulse.next_ping():
                self._ping(now)

    # --- pools come and go --------------------------------------------------------------------------------------

    def _lose_pool(self, away: PoolAway, now: float) -> None:
        """Raises `PoolUnreachable` where another one is not waited for."""
        is_torn = isinstance(away, TornAway)
        if self._outage is None and not is_torn:
            away = self._last_word(away)
        if away.listens:  # one that hangs need not run later what another has run by then; one that ends waits for it
            self.say_goodbye()
        if not self._peer.reconnect_timeout_s:
            self._dispatch.lose_pool(away.unread)
            raise PoolUnreachable(str(away)) from None
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        self._pulse = Pulse(now)
        if self._outage is not None:
            if is_torn:
                self._dispatch.lose_pool(unread=False)
            self._outage.failed(now)
            return
        pause_s = self._last_outage.pause_after(now - self._found_at)
        self._outage = Outage(self._peer.endpoint, self._peer.reconnect_timeout_s, now, str(away), pause_s)
        self._shared_memory.lose_pool()
        self._dispatch.lose_pool(away.unread)
        self._inquiries.lose_pool(away)

    def _last_word(self, away: PoolAway) -> PoolAway:
        """Answers that came before the connection broke are answers, and so is a farewell."""
        assert self._channel is not None
        try:
            while self._receive(self._channel, time.monotonic(), RECEIVE_BURST):
                pass
        except PoolAway as farewell:
            return farewell if farewell.unread else away
        return away

    def _find_pool(self, outage: Outage, opened: wire.Opened, instance: bytes) -> None:
        self._outage, self._last_outage, self._found_at = None, outage, time.monotonic()
        self._instance = instance
        self._shared_memory.open(self._peer.memory_path, opened.ticket)
        self._dispatch.open(opened, instance)
        for question in self._inquiries.wanted():
            self._send(question)
        if self._host is not None:
            self._host.changed()

    def _why_away(self, now: float) -> str:
        if self._outage is None:
            return f"the pool at {self._peer.endpoint} is stopping, and no other pool has taken its place"
        return self._outage.told(now)

    def say_goodbye(self) -> None:
        if self._outage is None:
            self._send(wire.Close())

    # --- out ----------------------------------------------------------------------------------------------------

    def _take_outbox(self) -> None:
        while self._outbox:
            item = self._outbox[0]
            if isinstance(item, Job):
                chunk = self._company.next(self._outbox)
                job = chunk or item
                self.jobs.add(job)  # first: a fork between the two must find it in one of them
                if chunk is None:
                    self._outbox.popleft()
                else:
                    self._company.leave(chunk, self._outbox)
                self._dispatch.send(job)
                continue
            self._outbox.popleft()
            match item:
                case Withdrawal():
                    self._dispatch.withdraw(item)
                case wire.Close():
                    self._closing = True
                    return
                case HandOver():
                    self._dispatch.hand_over(time.monotonic())
                case wire.Ask():
                    self._inquiries.add(item)
                    if self._outage is None:
                        self._send(item)

    def _ping(self, now: float) -> None:
        self._send(wire.Ping())
        self._pulse.pinged(now)
        self._dispatch.window.pinged()

    def _send(self, message: Message, payload: Sequence[bytes | memoryview] = ()) -> None:
        assert self._channel is not None  # who sends has a pool
        self._channel.send(encode(message, self._instance, payload))
        self._pulse.sent(time.monotonic())

    # --- in -----------------------------------------------------------------------------------------------------

    def _receive(self, channel: Channel, now: float, most: int) -> bool:
        """Takes so many messages at most; whether there may be more. `now`: when this process last saw the clock."""
        for _ in range(most):
            frames = channel.receive()
            if frames is None:
                return False
            self._pulse.heard(now)
            self._understand(frames, now)
        return True

    def _finish_all(self, results: Sequence[wire.Result], payload: Sequence[Buffer], now: float) -> None:
        begin = 0
        for result in results:
            end = begin + sum(result.pieces)
            mine = payload[begin:end]
            if len(results) > 1:  # who keeps one small answer is not to keep the frame with all of them
                mine = [bytes(buffer) if type(buffer) is memoryview else buffer for buffer in mine]
            self._dispatch.finish(result, mine, now)
            begin = end

    def _understand(self, frames: Sequence[zmq.Frame], now: float) -> None:
        try:
            envelope = decode(wire.CLIENT_MESSAGES, frames)
        except OtherVersion as error:
            raise Incompatible(str(error)) from None
        except BadFrame as error:
            raise Incompatible(f"the pool at {self._peer.endpoint} is not of this release: {error}") from None
        if self._outage is not None:
            if isinstance(envelope.message, wire.Opened):
                self._peer.check()  # again: the folder may have been made since
                self._find_pool(self._outage, envelope.message, envelope.instance)
                return
        elif envelope.instance != self._instance:
            raise PoolAway(f"another pool has taken the place of the one at {self._peer.endpoint}")
        match envelope.message:
            case wire.Results(results, waiting):
                self._finish_all(results, envelope.payload, now)
                if self._host is not None:
                    self._host.told(waiting, now)
            case wire.Failure() as failure:
                self._dispatch.fail(failure)
            case wire.Unpack() as unpack:
                self._dispatch.unpack(unpack)
            case wire.Opened() as opened:
                self._dispatch.adopt(opened)
            case wire.Released(job):
                self._dispatch.released(job)
            case wire.Unregistered(job):
                self._dispatch.register_again(job)
            case wire.Pong():
                self._dispatch.window.ponged()
            case wire.Answer() as answer:
                self._inquiries.answered(answer, envelope.payload)
            case wire.Farewell(text, unread):
                let_go = f"the pool at {self._peer.endpoint} disconnected this client: {text}"
                raise PoolAway(let_go, unread=unread, listens=True)
            case wire.Denied(text):
                raise NotAllowed(f"the pool at {self._peer.endpoint}: {text}")
            case wire.Refusal(text):
                # Of this protocol's version, so it is about what this client has sent, and would be again.
                raise PoolUnreachable(f"the pool at {self._peer.endpoint} dropped this client: {text}")

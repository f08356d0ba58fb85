"""The messages of one ROUTER, read frame by frame: a message of countless frames is neither held nor read in one go."""

import time
from collections.abc import Callable, Iterator

import zmq

from pool.wire.multipart import DONTWAIT

__all__ = ["BURST_S", "MESSAGES_A_TURN", "MOST_FRAMES", "Inbox"]

MOST_FRAMES = 4096  # of one message; a call has a frame a tensor, and a few more
# Before the pool's other sockets, and what is due, get their turn: so much together makes batches, more makes waits.
MESSAGES_A_TURN = 256
BURST_S = 1e-3
FRAMES_A_TURN = 4096  # a frame takes microseconds, so those of one message take some 20 ms at most


class Inbox:
    def __init__(
        self,
        socket: "zmq.Socket[bytes]",
        most_frames: Callable[[bytes], int] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most_frames`: how many frames a message from this routing id may have; otherwise `MOST_FRAMES`."""
        self.socket = socket
        self._readable = [(socket, zmq.POLLIN)]
        self._clock = clock
        self._most_frames = most_frames
        self._overlong = False  # the message being read has too many frames; what is left of it is discarded

    def turn(self) -> Iterator[tuple[bytes, list[zmq.Frame] | None]]:
        """A turn's messages as (routing id, frames); there may be more. None stands for too many frames.

        For who was told that something is there: where nothing is, that costs three times as much as to ask first.
        """
        receive = self.socket.recv
        messages, frames_left, ends = 0, FRAMES_A_TURN, 0.0
        while messages < MESSAGES_A_TURN and frames_left > 0:
            if self._overlong:
                frames_left -= self._discard(frames_left)
                continue
            if messages and not zmq.zmq_poll(self._readable, 0):  # a quarter of what it costs to have `recv` raise
                return
            try:
                route = receive(DONTWAIT)
            except zmq.Again:
                return
            frames = [receive(DONTWAIT, False)]  # a message comes whole or not at all
            messages += 1
            frames_left -= 2
            if frames[0].more:
                frames_left -= self._read_on(route, frames)
            if messages == 2:  # a lone one needs no clock
                ends = self._clock() + BURST_S
            elif messages > 2 and self._clock() >= ends:
                frames_left = 0
            yield route, None if self._overlong else frames

    def _read_on(self, route: bytes, frames: list[zmq.Frame]) -> int:
        """The frames after the first, but no more than there may be; how many they are."""
        most = MOST_FRAMES if self._most_frames is None else self._most_frames(route)
        while frames[-1].more and len(frames) < most:
            frames.append(self.socket.recv(DONTWAIT, False))
        self._overlong = frames[-1].more
        return len(frames) - 1

    def _discard(self, most: int) -> int:
        for number in range(1, most + 1):
            if not self.socket.recv(DONTWAIT, False).more:
                self._overlong = False
                return number
        return most

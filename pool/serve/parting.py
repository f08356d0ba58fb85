"""How an ending pool takes leave of its clients, so that each knows what it may send to the next one.

    pool                         client
      │ last answers, FAREWELL ───► │  knows now that what else it has sent was never read
      │ ◄───────────────────  CLOSE │

The CLOSE is waited for: when a connection ends, libzmq drops what its reader has not taken out of a socket that is
IMMEDIATE, as those of clients are.
"""

import time

import zmq

from pool.core.events import ClientGone
from pool.serve.front import Front

__all__ = ["part"]

PART_S = 0.5  # a client that runs answers in milliseconds
LOOK_S = 0.02  # how often the pipes of slow readers are tried meanwhile


def part(front: Front, text: str, *, unread: bool = True) -> None:
    """Takes half a second at most; what comes meanwhile is not wanted.

    `unread`: all jobs that were read have been answered, so none of the others has started.
    """
    waiting = front.say_farewell(text, unread)
    now = time.monotonic()
    ends = now + PART_S
    poller = zmq.Poller()
    for socket in front.sockets:
        poller.register(socket, zmq.POLLIN)
    while waiting and now < ends:
        for socket, _ in poller.poll(int(min(LOOK_S, ends - now) * 1000) + 1):
            for heard in front.receive(socket, now):
                if isinstance(heard, ClientGone):
                    waiting.discard(heard.client)
        now = time.monotonic()
        waiting -= {event.client for event in front.tend(now) if isinstance(event, ClientGone)}

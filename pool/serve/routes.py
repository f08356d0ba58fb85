"""ROUTERs whose routing ids are theirs alone to give.

libzmq numbers the peers of a ROUTER from a `rand()` that it never seeds: in every start the same ids. A peer may also
choose its id. One that takes the id that is given next makes libzmq abort this process, and one that takes the id of a
connection that broke gets what is sent there.
"""

import ctypes
import secrets

import zmq

__all__ = ["is_given", "new_router"]

_srand = ctypes.CDLL(None).srand  # libc's, which libzmq calls too
GIVEN_BYTES = 5  # a zero, and 32 bits that count


def new_router(context: "zmq.Context[zmq.Socket[bytes]]", io_thread: int = 0) -> "zmq.Socket[bytes]":
    """A ROUTER that drops nothing in silence. Nobody can tell its first id, not even from another ROUTER's.

    `io_thread`: which of the context's reads and writes for it, from 0.
    """
    _srand(ctypes.c_uint(secrets.randbits(32)))
    router = context.socket(zmq.ROUTER)
    router.router_mandatory = True
    router.affinity = 1 << io_thread
    return router


def is_given(route: bytes) -> bool:
    """Whether a ROUTER may have given this id. Others are chosen by their peers."""
    return len(route) == GIVEN_BYTES and not route[0]

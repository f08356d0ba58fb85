"""Who may enter at the tcp:// endpoints: libzmq asks for each handshake that has proved to have its secret key.

    client ── CURVE ──► libzmq ── ZAP: this public key? ──► `Zap` ──► KeyFolder: the file NAME.key
                          │ ◄──────── 200, or 400 ────────────┘
                          └─ frames of the connection have the property `User-Id`, which is that public key

Without a socket at this address libzmq lets every key in, or, where the ROUTER enforces its domain, none. A peer can
claim a `User-Id` of its own; libzmq's goes first, but only where somebody was asked. So it is read only there.
"""

import logging
from collections import Counter

import zmq
from zmq.utils import z85

from pool.keys import Entrant, KeyFolder, Pair
from pool.logs import about
from pool.serve.refusals import count
from pool.wire.multipart import DONTWAIT

__all__ = ["Zap"]

log = logging.getLogger("pool.zap")

ADDRESS = "inproc://zeromq.zap.01"  # as ZeroMQ's RFC 27 has it
DOMAIN = b"pool"
VERSION = b"1.0"
QUESTIONS_A_TURN = 64
STRANGER = "a connection, because its key may not enter"


class Zap:
    """REQUIRES that it is made before a ROUTER that it guards, and closed after. Used from the pool's loop."""

    def __init__(
        self, context: "zmq.Context[zmq.Socket[bytes]]", own: Pair, folder: KeyFolder, refused: "Counter[str]"
    ) -> None:
        """`own`: the pool's key."""
        self.socket = context.socket(zmq.REP)
        self.socket.linger = 0
        self._own = own
        self._folder = folder
        self._refused = refused
        self._told: frozenset[str] = frozenset()  # of unfit files
        self.socket.bind(ADDRESS)
        folder.read()
        self._tell_unfit()

    def guard(self, router: "zmq.Socket[bytes]") -> None:
        """Whoever comes there needs a key that may enter. REQUIRES that it is not bound yet."""
        router.curve_server = True
        router.curve_secretkey = self._own.secret.encode()
        router.zap_domain = DOMAIN
        router.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)  # or it would let all in where nobody answers

    def turn(self) -> None:
        """Answers at most a turn's questions; there may be more."""
        for _ in range(QUESTIONS_A_TURN):
            try:
                question = self.socket.recv_multipart(DONTWAIT)
            except zmq.Again:
                return
            # version, request, domain, address, routing id, mechanism, and what belongs to it: here the public key
            request, address = question[1], question[3].decode("ascii", "replace")
            entrant = self._folder.find(z85.encode(question[6]).decode()) if len(question) == 7 else None
            if entrant is None:
                said = [b"400", b"", b"", b""]
                if count(self._refused, STRANGER):
                    extra = about("stranger_refused", address=address)
                    log.warning("refused a connection from %s: its key may not enter", address, extra=extra)
                self._tell_unfit()
            else:
                said = [b"200", b"", entrant.public.encode(), b""]
            self.socket.send_multipart([VERSION, request, *said], DONTWAIT)

    def entrant(self, frame: zmq.Frame) -> Entrant | None:
        """Who sent it, if he may still enter. REQUIRES a frame of a ROUTER that asks here."""
        try:
            return self._folder.find(str(frame.get("User-Id")))
        except zmq.ZMQError:
            return None

    def close(self) -> None:
        self.socket.close()

    def _tell_unfit(self) -> None:
        """Of each file once: its owner wonders why he stays outside."""
        unfit = self._folder.unfit
        for path in unfit.keys() - self._told:
            log.warning("%s lets nobody in: %s", path, unfit[path], extra=about("key_unfit", reason=unfit[path]))
        self._told = frozenset(unfit)

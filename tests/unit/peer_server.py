"""A peer that doubles a row over HTTP, well or badly: `PORT BEHAVIOUR`. `GET /seen` tells how many bodies differed.

`right`; `cached`: the first body's answer to all; `mixed`: the answer to the body before; `short`: a byte is missing;
a number: that status, with the right body.
"""

import sys
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

BEHAVIOUR = sys.argv[2]
SEEN: set[bytes] = set()
BODIES: list[bytes] = []

CHOSEN: dict[str, Callable[[], bytes]] = {"cached": lambda: BODIES[0], "mixed": lambda: BODIES[max(0, len(BODIES) - 2)]}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # wrk keeps its connections

    def do_POST(self) -> None:  # so it is called by http.server
        body = self.rfile.read(int(self.headers["Content-Length"]))
        SEEN.add(body)
        BODIES.append(body)
        doubled = (np.frombuffer(CHOSEN.get(BEHAVIOUR, lambda: body)(), np.float32) * 2).tobytes()
        self._answer(doubled[:-1] if BEHAVIOUR == "short" else doubled)

    def do_GET(self) -> None:  # so it is called by http.server
        self._answer(str(len(SEEN)).encode(), 200)

    def _answer(self, body: bytes, status: int = int(BEHAVIOUR) if BEHAVIOUR.isdigit() else 200) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Says nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()

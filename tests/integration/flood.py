"""Connects again and again, as fast as it can, and keeps what it has: `python -m integration.flood HOST PORT COUNT N`.

N: this flood's number, which is in its own address, so that several have ports enough. Each third connection says
nothing, each third half a greeting, and each third a whole one and then what is none. Prints how many it has made and
how many it keeps, now and then, and holds them until its input ends.
"""

import contextlib
import json
import resource
import socket
import sys

from attacker.zmtp import greeting

WAIT_S = 2.0
TELL_EACH = 50
SPARE = 64  # descriptors of its own


def main(host: str, port: int, count: int, number: int) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    most = hard - SPARE
    said = (b"", greeting(b"CURVE")[:20], greeting(b"CURVE") + bytes(200))
    held: list[socket.socket] = []
    made = 0
    for attempt in range(count):
        with contextlib.suppress(OSError):  # the backlog is full for longer than it waits
            one = socket.create_connection((host, port), WAIT_S, (f"127.0.{number + 1}.1", 0))
            held.append(one)
            made += 1
            if len(held) > most:
                held.pop(0).close()
            one.sendall(said[attempt % len(said)])
        if attempt % TELL_EACH == 0 or attempt == count - 1:
            print(json.dumps({"attempts": attempt + 1, "made": made, "held": len(held)}), flush=True)  # noqa: T201
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))

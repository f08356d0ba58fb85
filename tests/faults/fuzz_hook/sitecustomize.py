"""A worker of slot 0 that is mad: while $FUZZ_FOLDER/on is there, it sends and hears what is mutated now and then.

Python imports this first where $PYTHONPATH has its folder. What the worker sends is written down beside it, too, and
the kind of each message of which something mutated was sent or heard.
"""

import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SENDS = 0.2
HEARS = 0.2  # few workers live long enough to hear a RUN
WELCOMES = 0.2  # there is one a worker


def install(folder: Path, seed: str) -> None:
    import msgpack
    import zmq

    sys.path.append(os.environ["FUZZ_TESTS"])
    from pool.wire.frames import BadFrame, OtherVersion
    from pool.wire.worker_messages import Welcome
    from support.mutations import mutated
    from workers import connection as connection_module

    connection: Any = connection_module  # inner names are read and put there

    rng = random.Random(seed)
    said: list[list[bytes]] = []
    decode: Callable[..., Any] = connection.decode
    mad = (folder / f"mad-{os.getpid()}").open("ab", buffering=0)
    diary = (folder / f"said-{os.getpid()}").open("ab", buffering=0)

    class Mad(connection_module.Connection):
        def send(self, message: Any, payload: "Sequence[bytes | memoryview]" = ()) -> None:
            frames = [bytes(frame) for frame in connection.encode(message, self._instance, payload)]
            said.append(frames)
            del said[:-50]
            diary.write(msgpack.packb(frames))
            if (folder / "on").exists() and rng.random() < SENDS:
                sane = rng.choice((frames, rng.choice(said)))
                mad.write(sane[0][5:6])
                self.socket.send_multipart(mutated(rng, sane, said) or [b""])
            super().send(message, payload)

    def hear(kinds: Any, frames: Sequence[Any]) -> Any:
        heard = list(map(bytes, frames))
        kind = heard[0][5]
        if (folder / "on").exists() and rng.random() < (WELCOMES if kind == Welcome.kind else HEARS):
            changed = mutated(rng, heard, [heard])
            if kind != Welcome.kind or not is_final(kinds, changed):
                mad.write(bytes((kind,)))
                frames = list(map(zmq.Frame, changed))
        return decode(kinds, frames)

    def is_final(kinds: Any, frames: Sequence[bytes]) -> bool:
        """Whether a WELCOME is one of another release, or of other models: the slot of who gets it may be given up."""
        try:
            return isinstance(decode(kinds, frames).message, Welcome)
        except OtherVersion:
            return True
        except BadFrame:
            return False

    from workers import lane, worker

    connection.decode = hear
    for user in (lane, worker):
        setattr(user, "Connection", Mad)  # noqa: B010  # a name that it has from elsewhere


if "workers" in sys.orig_argv and os.environ.get("FUZZ_FOLDER"):
    where = sys.orig_argv.index("--slot")
    if sys.orig_argv[where + 1] == "0":
        incarnation = sys.orig_argv[sys.orig_argv.index("--incarnation") + 1]
        install(Path(os.environ["FUZZ_FOLDER"]), f"{os.environ['FUZZ_SEED']}/{incarnation}")

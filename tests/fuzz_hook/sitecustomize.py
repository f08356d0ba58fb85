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
    from mutations import mutated
    from pool.wire.frames import BadFrame, OtherVersion
    from pool.wire.worker_messages import Welcome
    from workers import connection

    rng = random.Random(seed)
    said: list[list[bytes]] = []
    decode: Callable[..., Any] = connection.decode
    mad = (folder / f"mad-{os.getpid()}").open("ab", buffering=0)
    diary = (folder / f"said-{os.getpid()}").open("ab", buffering=0)

    class Mad(connection.Connection):
        def send(self, message: Any, payload: "Sequence[bytes | memoryview]" = ()) -> None:
            frames = [*connection.encode(message, self._instance), *map(bytes, payload)]
            said.append(frames)
            del said[:-50]
            diary.write(msgpack.packb(frames))
            if (folder / "on").exists() and rng.random() < SENDS:
                sane = rng.choice((frames, rng.choice(said)))
                mad.write(sane[0][5:6])
                self.socket.send_multipart(mutated(rng, sane, said) or [b""])
            super().send(message, payload)

    def hear(kinds: Any, preamble: bytes, header: Any, payload: Sequence[Any]) -> Any:
        if (folder / "on").exists() and rng.random() < (WELCOMES if preamble[5] == Welcome.kind else HEARS):
            heard = [preamble, bytes(header), *(frame.bytes for frame in payload)]
            changed, more, *rest = [*mutated(rng, heard, [heard]), b"", b""]
            if preamble[5] != Welcome.kind or not is_final(kinds, changed, more):
                mad.write(preamble[5:6])
                preamble, header, payload = changed, more, [zmq.Frame(frame) for frame in rest[:-2]]
        return decode(kinds, preamble, header, payload)

    def is_final(kinds: Any, preamble: bytes, header: bytes) -> bool:
        """Whether a WELCOME is one of another release, or of other models: the slot of who gets it may be given up."""
        try:
            return isinstance(decode(kinds, preamble, header, ()).message, Welcome)
        except OtherVersion:
            return True
        except BadFrame:
            return False

    from workers import lane, worker

    connection.decode = hear  # type: ignore[assignment]
    lane.Connection = worker.Connection = Mad  # type: ignore[misc]


if "workers" in sys.orig_argv and os.environ.get("FUZZ_FOLDER"):
    where = sys.orig_argv.index("--slot")
    if sys.orig_argv[where + 1] == "0":
        incarnation = sys.orig_argv[sys.orig_argv.index("--incarnation") + 1]
        install(Path(os.environ["FUZZ_FOLDER"]), f"{os.environ['FUZZ_SEED']}/{incarnation}")

"""A worker of slot 0 that is mad: while $FUZZ_FOLDER/on is there, it sends and hears what is mutated now and then.

Python imports this first where $PYTHONPATH has its folder. What the worker sends is written down beside it, too.
"""

import os
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SENDS = 0.2
HEARS = 0.05


def install(folder: Path, seed: str) -> None:
    import msgpack
    import zmq

    sys.path.append(os.environ["FUZZ_TESTS"])
    from mutations import mutated
    from pool.wire.worker_messages import Welcome
    from workers import connection

    rng = random.Random(seed)
    said: list[list[bytes]] = []
    decode: Callable[..., Any] = connection.decode
    diary = (folder / f"said-{os.getpid()}").open("ab", buffering=0)

    class Mad(connection.Connection):
        def send(self, message: Any, payload: "Sequence[bytes | memoryview]" = ()) -> None:
            frames = [*connection.encode(message, self._instance), *map(bytes, payload)]
            said.append(frames)
            del said[:-50]
            diary.write(msgpack.packb(frames))
            if (folder / "on").exists() and rng.random() < SENDS:
                self.socket.send_multipart(mutated(rng, rng.choice(said), said) or [b""])
            super().send(message, payload)

    def hear(kinds: Any, preamble: bytes, header: Any, payload: Sequence[Any]) -> Any:
        # Who does not understand WELCOME is of another release: its slot is given up at once, and rightly.
        if preamble[5] != Welcome.kind and (folder / "on").exists() and rng.random() < HEARS:
            heard = [preamble, bytes(header), *(frame.bytes for frame in payload)]
            preamble, header, *changed = [*mutated(rng, heard, [heard]), b"", b""]
            payload = [zmq.Frame(frame) for frame in changed[:-2]]
        return decode(kinds, preamble, header, payload)

    from workers import lane, worker

    connection.decode = hear  # type: ignore[assignment]
    lane.Connection = worker.Connection = Mad  # type: ignore[misc]


if "workers" in sys.orig_argv and os.environ.get("FUZZ_FOLDER"):
    where = sys.orig_argv.index("--slot")
    if sys.orig_argv[where + 1] == "0":
        incarnation = sys.orig_argv[sys.orig_argv.index("--incarnation") + 1]
        install(Path(os.environ["FUZZ_FOLDER"]), f"{os.environ['FUZZ_SEED']}/{incarnation}")

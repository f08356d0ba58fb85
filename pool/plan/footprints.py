"""How much of a device's memory each model needs: as its section says, as a former run has shown, or by its files."""

import json
import logging
import os
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from pool.config.sections import Model

NAME = "footprints.json"  # in the state folder
KEPT, ENTRY_BYTES = 1000, 100
GROWN = 1.05
# Weights are not all: an allocator rounds up, activations and what kernels work with come on top, and each process
# holds a CUDA context and the libraries' kernels.
PER_WEIGHTS, BASE_BYTES = 1.2, 300 << 20

log = logging.getLogger("pool.plan")


class Footprints:
    """What models have taken, kept in a file that is written whole or not at all. A broken one is as one not there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, int] = {}
        with suppress(OSError, ValueError, RecursionError, AttributeError), path.open("rb") as file:
            entries = json.loads(file.read(KEPT * ENTRY_BYTES)).items()
            self._known = {key: nbytes for key, nbytes in entries if type(nbytes) is int and 0 < nbytes < 2**62}

    def need(self, model: Model, digest: str, disk_bytes: int) -> tuple[int, str]:
        """Bytes, 0 if nobody knows, and who says so: "device_memory", "learned" or "weights".

        `digest` and `disk_bytes`: of its files.
        """
        if model.device_memory is not None:
            return model.device_memory, "device_memory"
        if nbytes := self._known.get(key_of(model, digest)):
            return nbytes, "learned"
        return int(disk_bytes * PER_WEIGHTS) + BASE_BYTES if disk_bytes else 0, "weights"

    def is_more(self, model: Model, digest: str, nbytes: int) -> bool:
        """Than is known, by more than a little."""
        return nbytes > self._known.get(key_of(model, digest), 0) * GROWN

    def learn(self, model: Model, digest: str, nbytes: int) -> None:
        """Keeps what a worker took with this model alone and memory as it grew. REQUIRES `is_more`. May take long."""
        key = key_of(model, digest)
        self._known.pop(key, None)  # the entries that have not changed for the longest time go first
        self._known = dict([*self._known.items(), (key, nbytes)][-KEPT:])
        part = self._path.with_suffix(f".{os.getpid()}.part")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part.write_text(json.dumps(self._known))
            part.rename(self._path)
        except OSError as error:  # such as a full disk
            log.warning("what %s takes of a device is not kept for the next start: %s", model.name, error)


def key_of(model: Model, digest: str) -> str:
    decides = [model.path, digest, model.max_batch, model.xla, model.mixed_precision]
    return sha256(json.dumps(decides).encode()).hexdigest()[:32]

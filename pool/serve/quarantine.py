"""The inputs of jobs that killed their workers, kept for whoever has to find out why.

Each is an `.npz` file: `header.json` says which job it was, and each tensor is an array of its own. Strings are two
arrays, the bytes of all and where each ends. Written without numpy, by a thread, since shared memory may be large.
"""

import json
import logging
import math
import os
import threading
import time
import zipfile
from collections import deque
from pathlib import Path

from pool.wire.bodies import PART, bodies, failure
from pool.wire.specs import ITEM_BYTES, JobSpec, aligned, parse_job

__all__ = ["Quarantine"]

KEPT = 20
MOST_BYTES = 256 << 20
CLOSE_S = 2.0
NUMPY = {"bool": "|b1", "int8": "|i1", "uint8": "|u1", "float16": "<f2", "float32": "<f4", "float64": "<f8"} | {
    **{f"{sign}int{bits}": f"<{sign or 'i'}{bits // 8}" for sign in ("", "u") for bits in (16, 32, 64)},
    "complex64": "<c8",
    "complex128": "<c16",
}
"""Of what numpy has by itself; other dtypes are kept as bytes, and the header says what they are."""

log = logging.getLogger("pool.serve")


class Quarantine:
    """`bell` is readable when `finished` has something."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: list[threading.Thread] = []
        self.bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.finished: deque[tuple[bytes, bytes]] = deque()
        """Routes, and the failures that may be sent there now: until then a client leaves its memory as it is."""

    def keep(self, route: bytes, body: bytes, memory: int, text: str) -> None:
        """`memory`: a descriptor of the arena that the body names, which is closed here, or -1."""
        writer = threading.Thread(target=self._keep, args=(route, body, memory, text), daemon=True)
        self._writers = [*(each for each in self._writers if each.is_alive()), writer]
        writer.start()

    def close(self) -> None:
        until = time.monotonic() + CLOSE_S
        for writer in self._writers:
            writer.join(max(0.0, until - time.monotonic()))

    def _keep(self, route: bytes, body: bytes, memory: int, text: str) -> None:
        (job,) = bodies(body)
        try:
            data = body[job.begins : job.ends]
            if memory >= 0:
                _, offset, length, _, _ = PART.unpack(data)
                if length > MOST_BYTES:
                    raise ValueError(f"{length} bytes are more than {MOST_BYTES}")
                data = os.pread(memory, length, offset)
            path = self._folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{route.hex()}-{job.job}.npz"
            self._write(path, parse_job(job.spec), data, text)
            text = f"{text}; its inputs are kept in {path}"
        except Exception as error:  # a full disk must not cost the client its answer
            log.error("the inputs of a quarantined job could not be kept: %s", error)
        finally:
            if memory >= 0:
                os.close(memory)
            self.finished.append((route, failure(job.job, "Quarantined", text)))
            os.eventfd_write(self.bell, 1)

    def _write(self, path: Path, spec: JobSpec, data: bytes, text: str) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        header = {
            "model": spec.model,
            "signature": spec.signature,
            "outputs": spec.outputs,
            "dtypes": {each.name: each.dtype for each in spec.tensors},
            "why": text,
        }
        with zipfile.ZipFile(part, "w") as file:
            file.writestr("header.json", json.dumps(header))
            for name, array in arrays(spec, data):
                file.writestr(f"{name}.npy", array)
        part.chmod(0o600)
        part.rename(path)
        for old in sorted(self._folder.glob("*.npz"))[:-KEPT]:
            old.unlink(missing_ok=True)


def arrays(spec: JobSpec, data: bytes) -> list[tuple[str, bytes]]:
    """Each tensor as the bytes of a `.npy` file."""
    found: list[tuple[str, bytes]] = []
    offset = 0
    for tensor in spec.tensors:
        piece = data[offset : offset + tensor.nbytes]
        offset += aligned(tensor.nbytes)
        safe = tensor.name.replace("/", "|").replace("\0", "")
        if tensor.dtype == "string":
            found.append((f"{safe}.ends", npy("<u8", tensor.shape, piece)))
        elif tensor.dtype in NUMPY:
            found.append((safe, npy(NUMPY[tensor.dtype], tensor.shape, piece)))
        else:
            found.append((safe, npy("|u1", (*tensor.shape, ITEM_BYTES[tensor.dtype]), piece)))
    if any(tensor.dtype == "string" for tensor in spec.tensors):
        found.append(("strings", npy("|u1", (len(data) - offset,), data[offset:])))
    return found


def npy(dtype: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """A `.npy` file of version 1.0."""
    assert math.prod(shape) * int(dtype[2:]) == len(data)
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data

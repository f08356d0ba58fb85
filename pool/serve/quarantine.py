"""The inputs of jobs that killed their workers, kept for whoever has to find out why.

Each is an `.npz` file: `header.json` says which job it was, and each tensor is an array of its own. Strings are two
arrays, the bytes of all and where each ends. Written without numpy, by a thread, since a disk may be slow.
"""

import json
import logging
import os
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from pool.core.jobs import Job
from pool.wire.bodies import PART, SHARED, bodies
from pool.wire.specs import ITEM_BYTES, JobSpec, aligned, parse_job

KEPT = 20
MOST_BYTES = 64 << 20  # of shared memory: copying them holds the pool up for some 20 ms
MOST_WRITERS = 4
NAME = "quarantine"
NUMPY = {"bool": "|b1", "int8": "|i1", "uint8": "|u1", "complex64": "<c8", "complex128": "<c16"}
NUMPY |= {f"{kind}{bits}": f"<{kind[0]}{bits // 8}" for kind in ("int", "uint", "float") for bits in (16, 32, 64)}
"""Of what numpy has by itself; other dtypes are kept as bytes, and the header says what they are."""

log = logging.getLogger("pool.serve")


def keep(folder: Path, job: Job, arenas: Mapping[int, tuple[int, int]], text: str) -> str:
    """The text, and where the job's inputs will be. `arenas`: what its client has lent."""
    (body,) = bodies(job.body)
    data = job.body[body.begins : body.ends]
    is_too_much = sum(each.name == NAME for each in threading.enumerate()) >= MOST_WRITERS
    if body.flags & SHARED:
        arena, offset, length, _, _ = PART.unpack(data)
        if arena not in arenas:  # its channel is closed, and nobody waits for the job
            return text
        is_too_much |= length > MOST_BYTES
        # Copied, for the client may use its memory again once it has the answer.
        data = b"" if is_too_much else os.pread(arenas[arena][0], length, offset)
    if is_too_much:
        return f"{text}; its inputs are not kept, for they are too large, or the disk is too slow"
    path = folder / f"{time.strftime('%Y%m%d-%H%M%S')}-{job.channel.hex()}-{job.number}.npz"
    try:
        threading.Thread(target=write, name=NAME, args=(path, parse_job(body.spec), data, text)).start()
    except RuntimeError:  # the limit of threads is reached
        return f"{text}; its inputs are not kept"
    return f"{text}; its inputs are kept in {path}"


def write(path: Path, spec: JobSpec, data: bytes, text: str) -> None:
    header = spec._asdict() | {"why": text}
    part = path.with_suffix(".part")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with zipfile.ZipFile(part, "w") as file:
            file.writestr("header.json", json.dumps(header))
            for name, array in arrays(spec, data):
                file.writestr(f"{name}.npy", array)
        part.chmod(0o600)
        part.rename(path)
        for old in sorted(path.parent.glob("*.npz"))[:-KEPT]:
            old.unlink(missing_ok=True)
    except Exception as error:  # such as a full disk
        log.error("the inputs of a quarantined job could not be kept: %s", error)


def arrays(spec: JobSpec, data: bytes) -> Iterator[tuple[str, bytes]]:
    """Each tensor as the bytes of a `.npy` file."""
    offset = 0
    for tensor in spec.tensors:
        piece = data[offset : offset + tensor.nbytes]
        offset += aligned(tensor.nbytes)
        safe = tensor.name.replace("/", "|").replace("\0", "")
        if tensor.dtype == "string":
            yield f"{safe}.ends", npy("<u8", tensor.shape, piece)
        elif tensor.dtype in NUMPY:
            yield safe, npy(NUMPY[tensor.dtype], tensor.shape, piece)
        else:
            yield safe, npy("|u1", (*tensor.shape, ITEM_BYTES[tensor.dtype]), piece)
    if any(tensor.dtype == "string" for tensor in spec.tensors):
        yield "strings", npy("|u1", (len(data) - offset,), data[offset:])


def npy(dtype: str, shape: tuple[int, ...], data: bytes) -> bytes:
    """A `.npy` file of version 1.0."""
    text = repr({"descr": dtype, "fortran_order": False, "shape": shape}).encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data

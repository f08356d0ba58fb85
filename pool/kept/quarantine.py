"""The inputs of jobs that killed their workers, kept in the state folder until somebody looks at them.

    quarantine/20260131-081502.417-digits-81.job    0600, in a folder of 0700
    ┌──────────────────────┬──────────────┬─────────────────────────┬──────────────────────────────────┐
    │ "TFWPJOB" · format   │ u32 · header │ u64 · table, as `_Table`│ u64 · buffer, one for each tensor│
    └──────────────────────┴──────────────┴─────────────────────────┴──────────────────────────────────┘

The buffers are as `pool.wire.tensors` writes them; who changes that has to read those of `TENSORS` here.

All of them together are bounded in number and bytes; the oldest go first. A file is data, whoever wrote it: reading one
runs nothing.
"""

import logging
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pool.errors import InvalidInput
from pool.kept.files import Buffer, KeptFiles
from pool.kept.format import format_of, read_file
from pool.logs import about
from pool.wire.calls import TABLE_BYTES, Table, TensorHeader
from pool.wire.codec import BadFrame, pack, unpack

__all__ = ["KeptJob", "Quarantine", "load", "state_folder"]

log = logging.getLogger("pool.kept.quarantine")

FORMAT = 1
MAGIC = b"TFWPJOB" + bytes((FORMAT,))
TENSORS = 7  # the form of tables and buffers: a number of their own, which began as that of the wire protocol
SUFFIX = ".job"
MODEL_CHARS = 80  # of a file's name


@dataclass(frozen=True, slots=True)
class KeptJob:
    """What a SUBMIT needs to send the job again: `payload` is its packed `Table` and a buffer a tensor.

    `history` is how it came here, a line an event. `number` is the pool's own of that time, `kept_at` UTC in ISO 8601.
    """

    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    history: str
    payload: tuple[bytes, ...]
    number: int = 0
    kept_at: str = ""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """As the wire's `TensorHeader` was when `TENSORS` became what it is."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    weak: bool


@dataclass(frozen=True, slots=True)
class _Table:
    tensors: tuple[_Tensor, ...]


@dataclass(frozen=True, slots=True)
class _Header:
    """Its form and the table's belong to `FORMAT`: another field means another number."""

    tensors: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    history: str
    number: int
    kept_at: str
    frames: int


def load(path: Path) -> KeptJob:
    """The job in a file that `Quarantine` wrote. Raises `InvalidInput`, which names the file, and nothing else."""
    try:
        data = read_file(path)
    except (OSError, ValueError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"{path}: cannot be read: {reason or type(error).__name__}") from None
    if data is None:
        raise InvalidInput(f"{path}: is not a file")
    try:
        return _parse(data)
    except BadFrame as error:
        raise InvalidInput(f"{path}: is not a stored job: {error}") from None


def _parse(data: bytes) -> KeptJob:
    number = format_of(data[: len(MAGIC)])
    if number is not None and number > FORMAT:
        raise BadFrame(f"a newer release wrote it in format {number}; this release reads {FORMAT}")
    if data[: len(MAGIC)] != MAGIC:
        raise BadFrame("it does not begin like one")
    header_bytes, position = _piece(memoryview(data), len(MAGIC), 4)
    header = unpack(_Header, header_bytes)
    if header.tensors != TENSORS:
        raise BadFrame(f"its tensors have form {header.tensors}; this release reads {TENSORS}")
    if header.rows is not None and header.rows < 1:
        raise BadFrame(f"{header.rows} rows")
    payload: list[bytes] = []
    while position < len(data) and len(payload) <= header.frames:
        frame, position = _piece(memoryview(data), position, 8)
        payload.append(bytes(frame))
    if header.frames != len(payload) or not payload:
        raise BadFrame(f"it does not have the {header.frames} frames that it names")
    return KeptJob(payload=(_as_sent(payload[0]), *payload[1:]), **_about(header))


def _about(job: "KeptJob | _Header") -> dict[str, Any]:
    """What both say of a job, by name."""
    return {each.name: getattr(job, each.name) for each in fields(KeptJob) if each.name != "payload"}


def _as_sent(table: bytes) -> bytes:
    """A kept table as the wire has it now. Raises `BadFrame`."""
    tensors = unpack(_Table, table, TABLE_BYTES).tensors
    return pack(Table(tuple(TensorHeader(each.name, each.dtype, each.shape, each.weak) for each in tensors)))


def _as_kept(table: Buffer) -> bytes:
    """A table of the wire as it is kept. Raises `BadFrame`."""
    tensors = unpack(Table, table, TABLE_BYTES).tensors
    return pack(_Table(tuple(_Tensor(each.name, each.dtype, each.shape, each.weak) for each in tensors)))


def _piece(data: memoryview, position: int, size_bytes: int) -> tuple[memoryview, int]:
    """What stands after its length, and where it ends."""
    start = position + size_bytes
    end = start + int.from_bytes(data[position:start], "little")
    if not start <= end <= len(data):
        raise BadFrame("it is cut short")
    return data[start:end], end


def state_folder(environ: Mapping[str, str]) -> Path | None:
    """$STATE_DIRECTORY (systemd's; the first of several), else $XDG_STATE_HOME/pool, else ~/.local/state/pool.

    None where there is no home either.
    """
    if given := environ.get("STATE_DIRECTORY", "").split(":")[0]:
        return Path(given)
    if (given := environ.get("XDG_STATE_HOME", "")).startswith("/"):  # the standard has others ignored
        return Path(given, "pool")
    home = environ.get("HOME") or os.path.expanduser("~")
    return Path(home, ".local/state/pool") if home.startswith("/") else None


class Quarantine(KeptFiles):
    """Used from one thread; nothing here blocks it but `close`, and nothing raises."""

    def __init__(self, state: Path | None, keep: int, max_bytes: int) -> None:
        """Keeps at most `keep` files of `max_bytes` together below `state`; 0 files: none at all."""
        folder = None if state is None else state / "quarantine"
        super().__init__(folder, SUFFIX, keep, max_bytes, FORMAT, "quarantine")

    def keep(self, job: KeptJob, payload: Sequence[Buffer], over: Callable[[], object] = lambda: None) -> Path | None:
        """Writes the job with this payload in place of its own, which is not copied. Returns where, if it is kept.

        `over` is called once, in whatever thread, when nobody reads the payload any more: written, or given up.
        """
        if not self.most_files:
            over()
            return None
        now = datetime.now(UTC)
        try:
            data = _packed(replace(job, kept_at=now.isoformat(timespec="seconds")), payload)
        except BadFrame as error:  # the pool has read this table before
            _not_kept(job, str(error))
            over()
            return None
        stamp = f"{now:%Y%m%d-%H%M%S}.{now.microsecond // 1000:03}"
        return self.write(f"{stamp}-{job.model[:MODEL_CHARS]}-{job.number}", data, partial(_tell, job, over))


def _tell(job: KeptJob, over: Callable[[], object], path: Path, failure: str | None) -> None:
    over()
    if failure is not None:
        _not_kept(job, failure)
        return
    log.warning(
        "the inputs of job %d of model %s are stored: try it again with `pool submit --replay %s`",
        job.number,
        job.model,
        shlex.quote(str(path)),
        extra=about("inputs_kept", job=job.number, model=job.model, path=str(path)),
    )


def _not_kept(job: KeptJob, why: str) -> None:
    extra = about("inputs_not_kept", job=job.number, model=job.model, reason=why)
    log.warning("the inputs of job %d of model %s are not stored: %s", job.number, job.model, why, extra=extra)


def _packed(job: KeptJob, payload: Sequence[Buffer]) -> list[Buffer]:
    header = pack(_Header(tensors=TENSORS, frames=len(payload), **_about(job)))
    data: list[Buffer] = [MAGIC, len(header).to_bytes(4, "little"), header]
    for frame in (_as_kept(payload[0]), *payload[1:]):
        data += (len(frame).to_bytes(8, "little"), frame)
    return data

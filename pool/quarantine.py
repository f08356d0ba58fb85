"""The inputs of jobs that killed their workers, kept in the state folder until somebody looks at them.

    quarantine/20260131-081502.417-digits-81.job    0600, in a folder of 0700
    ┌────────────────────────────┬──────────────┬─────────────────────┬──────────────────────────────────┐
    │ "TFWPJOB" · format version │ u32 · header │ u64 · packed `Table`│ u64 · buffer, one for each tensor│
    └────────────────────────────┴──────────────┴─────────────────────┴──────────────────────────────────┘

The pool's loop never waits for the disk: a thread of its own writes each file. All of them together are bounded in
number and bytes; the oldest go first. A file is data, whoever wrote it: reading one runs nothing.
"""

import contextlib
import logging
import os
import stat
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pool.errors import InvalidInput
from pool.wire.codec import BadFrame, pack, unpack
from pool.wire.frames import VERSION

__all__ = ["KeptJob", "Quarantine", "load", "state_folder"]

log = logging.getLogger("pool.quarantine")

MAGIC = b"TFWPJOB\x01"
SUFFIX = ".job"
UNFINISHED = ".part"
STALE_S = 3600.0  # an unfinished file of this age is a killed pool's
MODEL_CHARS = 80  # of a file's name

Buffer = bytes | memoryview


@dataclass(frozen=True, slots=True)
class KeptJob:
    """What a SUBMIT needs to send the job again: `payload` is its packed `Table` and a buffer a tensor.

    `story` is how it came here, a line an event. `number` is the pool's own of that time, `kept_at` UTC in ISO 8601.
    """

    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    story: str
    payload: tuple[bytes, ...]
    number: int = 0
    kept_at: str = ""


@dataclass(frozen=True, slots=True)
class _Header:
    protocol: int
    model: str
    signature: str | None
    outputs: tuple[str, ...] | None
    rows: int | None
    story: str
    number: int
    kept_at: str
    frames: int


def load(path: Path) -> KeptJob:
    """The job in a file that `Quarantine` wrote. Raises `InvalidInput`, which names the file, and nothing else."""
    try:
        # Not blocking: opening a pipe would wait for somebody who writes.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise InvalidInput(f"{path}: is not a file")
            data = file.read()
    except (OSError, ValueError, MemoryError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InvalidInput(f"{path}: cannot be read: {reason or type(error).__name__}") from None
    try:
        return _parse(data)
    except BadFrame as error:
        raise InvalidInput(f"{path}: is not a job that a pool has kept: {error}") from None


def _parse(data: bytes) -> KeptJob:
    if data[: len(MAGIC)] != MAGIC:
        raise BadFrame("it begins in another way")
    header_bytes, position = _piece(memoryview(data), len(MAGIC), 4)
    header = unpack(_Header, header_bytes)
    if header.protocol != VERSION:
        raise BadFrame(f"its tensors are those of protocol version {header.protocol}, {VERSION} here")
    if header.rows is not None and header.rows < 1:
        raise BadFrame(f"{header.rows} rows")
    payload: list[bytes] = []
    while position < len(data) and len(payload) <= header.frames:
        frame, position = _piece(memoryview(data), position, 8)
        payload.append(bytes(frame))
    if header.frames != len(payload) or not payload:
        raise BadFrame(f"it has not the {header.frames} frames that it names")
    return KeptJob(
        header.model,
        header.signature,
        header.outputs,
        header.rows,
        header.story,
        tuple(payload),
        header.number,
        header.kept_at,
    )


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


class Quarantine:
    """Used from one thread; nothing here blocks it but `close`, and nothing raises."""

    def __init__(self, state: Path | None, keep: int, max_bytes: int) -> None:
        """Keeps at most `keep` files of `max_bytes` together below `state`; 0 files: none at all."""
        self.folder = None if state is None else state / "quarantine"
        self._keep = keep
        self._max_bytes = max_bytes
        self._writing = threading.Lock()  # one file at a time, so that the bounds hold
        self._threads: list[threading.Thread] = []

    def keep(self, job: KeptJob, payload: Sequence[Buffer]) -> None:
        """Writes the job with this payload in place of its own, which is not copied and must not change any more."""
        whose = f"the inputs of job {job.number} of model {job.model}"
        if self._keep == 0:
            return
        now = datetime.now(UTC)
        data = _packed(job, now.isoformat(timespec="seconds"), payload)
        size_bytes = sum(map(len, data))
        if self.folder is None:
            log.warning("%s are not kept: there is no state folder; set [pool] state", whose)
        elif size_bytes > self._max_bytes:
            bound = self._max_bytes
            log.warning(
                "%s are not kept: the file would have %d bytes, [quarantine] max_bytes is %d", whose, size_bytes, bound
            )
        else:
            stamp = f"{now:%Y%m%d-%H%M%S}.{now.microsecond // 1000:03}"
            path = self.folder / f"{stamp}-{job.model[:MODEL_CHARS]}-{job.number}{SUFFIX}"
            thread = threading.Thread(target=self._write, args=(path, data, whose), name="quarantine", daemon=True)
            self._threads = [*(other for other in self._threads if other.is_alive()), thread]
            thread.start()

    def close(self, timeout_s: float) -> None:
        """Waits so long at most for what is being written."""
        ends = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))

    def _write(self, path: Path, data: Sequence[Buffer], whose: str) -> None:
        try:
            with self._writing:
                _prepare(path.parent)
                self._make_room(path.parent, sum(map(len, data)))
                _write(path, data)
        except OSError as error:
            log.warning("%s are not kept: %s: %s", whose, path.parent, error.strerror or error)
            return
        log.warning("%s are kept: try it again with `pool submit --replay %s`", whose, path)

    def _make_room(self, folder: Path, size_bytes: int) -> None:
        """Removes the oldest files, and what a killed pool has left."""
        kept: list[tuple[float, str, int]] = []
        with os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # another pool of the same user has removed it
                    about = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(about.st_mode):
                        continue
                    if entry.name.endswith(SUFFIX):
                        kept.append((about.st_mtime, entry.name, about.st_size))
                    elif entry.name.endswith(UNFINISHED) and time.time() - about.st_mtime > STALE_S:
                        os.unlink(entry.path)
        kept.sort(reverse=True)
        left = sum(size for *_, size in kept)
        while kept and (len(kept) >= self._keep or left + size_bytes > self._max_bytes):
            _, name, size = kept.pop()
            left -= size
            (folder / name).unlink(missing_ok=True)


def _packed(job: KeptJob, kept_at: str, payload: Sequence[Buffer]) -> list[Buffer]:
    header = pack(
        _Header(
            VERSION,
            job.model,
            job.signature,
            job.outputs,
            job.rows,
            job.story,
            job.number,
            kept_at,
            len(payload),
        )
    )
    data: list[Buffer] = [MAGIC, len(header).to_bytes(4, "little"), header]
    for frame in payload:
        data += (len(frame).to_bytes(8, "little"), frame)
    return data


def _prepare(folder: Path) -> None:
    """Makes the folder, this user's alone; raises OSError for one that another user has prepared."""
    folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    about = folder.stat(follow_symlinks=False)
    if not stat.S_ISDIR(about.st_mode):
        raise OSError("not a folder (a link is refused too)")
    if about.st_uid != os.geteuid():
        raise OSError(f"belongs to uid {about.st_uid}, not to uid {os.geteuid()}")
    if about.st_mode & 0o077:
        folder.chmod(0o700)


def _write(path: Path, data: Sequence[Buffer]) -> None:
    """The whole file under its name, or none."""
    unfinished = path.with_name(f"{path.name}.{os.getpid()}{UNFINISHED}")
    # Made anew: what stands there would have its own mode, or be a link.
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with open(descriptor, "wb") as file:
            for piece in data:
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        unfinished.rename(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise

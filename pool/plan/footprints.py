"""How much of a device each model is planned with, and who says so: its section, a former run, or its files.

What its worker was seen to take of its GPUs once it was warm is kept in the state folder: a file each, by all that
decides it: where the model lies, its files' names, sizes and times, and the settings that decide what is loaded and
warmed up. So a model that was changed starts from the size of its files again.
"""

import hashlib
import json
import logging
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from glob import escape
from pathlib import Path
from typing import Literal, TypeAlias

from pool.kept import KeptFiles
from pool.logs import about
from pool.wire.model_files import Format, NotServed, checkpoint_prefix, files_of, look
from pool.wire.worker_messages import ModelSettings

__all__ = ["Footprints", "Size", "Sizes", "find_size", "fingerprint", "footprint", "model_bytes"]

log = logging.getLogger("pool.footprints")

FORMAT = 1
SUFFIX = ".json"
KEEP = 1000  # models; the oldest go first
MAX_BYTES = 4 << 20
LARGEST = 64 << 10  # bytes; what is larger is none of ours


@dataclass(frozen=True, slots=True)
class Size:
    """`source`: the key `device_memory`, what its worker took in a former run once warm, or its weights' bytes."""

    size_bytes: int
    source: Literal["device_memory", "a former run", "its files"]


Sizes: TypeAlias = Mapping[str, Size]


def find_size(model: ModelSettings, device_memory: int | None, lanes: int, state: Path | None) -> Size:
    """`device_memory`: what the configuration says, or None. Reads the disk."""
    if device_memory is not None:
        return Size(device_memory, "device_memory")
    learned = None if state is None else footprint(state, fingerprint(model, lanes))
    return Size(model_bytes(model.path), "its files") if learned is None else Size(learned, "a former run")


def model_bytes(path: str) -> int:
    """How much of a model is weights: what it takes on a device at least, where `device_memory` does not say.

    A SavedModel counts what is under `variables/`, or without any the graph itself, which then holds the weights
    as constants; a meta graph its checkpoint; any other file counts whole. 0 for what is not there, cannot be looked
    at, is no model or is a stub: loading it is what tells.
    """
    if path.startswith("stub:"):
        return 0
    try:
        found = look(path)
        match found.format:
            case Format.SAVED_MODEL:
                return _sizes((found.path / "variables").rglob("*")) or _sizes([found.path / "saved_model.pb"])
            case Format.META_GRAPH:
                folder, prefix = found.path.parent, checkpoint_prefix(found.path)
                return _sizes(folder.glob(f"{escape(prefix)}.data-*")) or _sizes([folder / prefix])
        return _sizes([found.path])
    except (NotServed, OSError):
        return 0


def _sizes(files: Iterable[Path]) -> int:
    return sum(os.path.getsize(file) for file in files if file.is_file())


def fingerprint(model: ModelSettings, lanes: int) -> str | None:
    """Of what decides the model's footprint; None where its files cannot be read. Reads the disk."""
    try:
        files = [] if model.path.startswith("stub:") else list(files_of(model.path))
    except (NotServed, OSError):
        return None
    rules = [(rule.layers, rule.device) for rule in model.layer_devices]
    chosen = [model.tags, model.batch_sizes, model.warmup, rules, model.least_loaded, model.copy_per_device, lanes]
    decides = [FORMAT, model.path, files, chosen]
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:32]


def footprint(state: Path | None, key: str | None) -> int | None:
    """The bytes that were kept under this fingerprint; None where there are none. Never raises."""
    if state is None or key is None:
        return None
    try:
        with (state / "footprints" / f"{key}{SUFFIX}").open("rb") as file:
            found = json.loads(file.read(LARGEST))
        size = found["bytes"] if found["format"] == FORMAT else None
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return size if type(size) is int and size > 0 else None


class Footprints:
    """Used from one thread; nothing here blocks it but `close`, and nothing raises."""

    def __init__(self, state: Path | None) -> None:
        """Without a state folder nothing is kept."""
        self._kept = None if state is None else KeptFiles(state / "footprints", SUFFIX, KEEP, MAX_BYTES, FORMAT)
        self._largest: dict[str, int] = {}
        self._guard = threading.Lock()
        self._threads: list[threading.Thread] = []

    def learn(self, model: ModelSettings, lanes: int, device: str, size_bytes: int) -> None:
        """Of several workers of this pool that have the model, the largest counts."""
        if self._kept is None:
            return
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        arguments = (self._kept, model, lanes, device, size_bytes)
        thread = threading.Thread(target=self._learn, args=arguments, name="footprints", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            _not_kept(model.name, str(error))
            return
        self._threads.append(thread)

    def close(self, timeout_s: float) -> None:
        """Waits so long at most for what is being written."""
        for thread in self._threads:
            thread.join(timeout_s)
        if self._kept is not None:
            self._kept.close(timeout_s)

    def _learn(self, kept: KeptFiles, model: ModelSettings, lanes: int, device: str, size_bytes: int) -> None:
        """In a thread of its own: the model's files may lie on a disk that does not answer."""
        key = fingerprint(model, lanes)
        if key is None:
            _not_kept(model.name, "its files cannot be read")
            return
        with self._guard:
            if size_bytes <= self._largest.get(key, 0):
                return
            self._largest[key] = size_bytes
            at = datetime.now(UTC).isoformat(timespec="seconds")
            told = {"format": FORMAT, "model": model.path, "bytes": size_bytes, "device": device, "at": at}
            kept.write(key, [json.dumps(told).encode()], lambda _, why: _not_kept(model.name, why) if why else None)


def _not_kept(model: str, why: str) -> None:
    extra = about("footprint_not_kept", model=model, reason=why)
    log.warning("the GPU memory that %s takes is not stored for the next start: %s", model, why, extra=extra)

"""What a model's worker was seen to take of its GPUs once it was warm, kept in the state folder for the next plan.

A file each, by all that decides it: where the model lies, its files' names, sizes and times, and the settings that
decide what is loaded and warmed up. So a model that was changed starts from the size of its files again.
"""

import hashlib
import json
import logging
import threading
from datetime import UTC, datetime
from pathlib import Path

from pool.kept import KeptFiles
from pool.logs import about
from pool.wire.model_files import NotServed, files_of
from pool.wire.worker_messages import ModelSettings

__all__ = ["Footprints", "fingerprint", "footprint"]

log = logging.getLogger("pool.footprints")

FORMAT = 1
SUFFIX = ".json"
KEEP = 1000  # models; the oldest go first
MAX_BYTES = 4 << 20
LARGEST = 64 << 10  # bytes; what is larger is none of ours


def fingerprint(model: ModelSettings, lanes: int) -> str | None:
    """Of what decides the model's footprint; None where its files cannot be looked at. Reads the disk."""
    try:
        files = [] if model.path.startswith("stub:") else list(files_of(model.path))
    except (NotServed, OSError):
        return None
    rules = [(rule.layers, rule.device) for rule in model.placement]
    chosen = [model.tags, model.batch_sizes, model.warmup, rules, model.least_loaded, model.towers, lanes]
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
            _not_kept(model.name, "its files cannot be looked at")
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
    log.warning("what %s takes of its GPU is not kept for the next start: %s", model, why, extra=extra)

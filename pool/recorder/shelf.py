"""The bundles on the disk: JSON, a file each, and what former pools of the same endpoint have left there."""

import json
import logging
import os
import re
import stat
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pool.kept_files import KeptFiles
from pool.kept_format import NewerFiles
from pool.logs import about
from pool.recorder.fault_report import FORMAT as FAULT_FORMAT

__all__ = ["FORMAT", "Bundle", "Shelf"]

log = logging.getLogger("pool.recorder")

FORMAT = 1  # of bundles
NEWEST = max(FORMAT, FAULT_FORMAT)  # one row of numbers for all in the folder: the next of either is one above it
SUFFIX = ".json"
LARGEST = 4 << 20  # bytes; what is larger is none of ours
MOST_LISTED = 10_000

Bundle = dict[str, Any]

_NAME = re.compile(r"\d{8}-\d{6}\.\d{6}-slot(\d{1,9})-\d+\.json", re.ASCII)
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    "format": int,
    "endpoint": str,
    "slot": int,
    "incarnation": int,
    "device": str,
    "died_at": str,
    "exit": str,
    "killed_for": (str, type(None)),
    "state": str,
    "batches": list,
    "beats": list,
    "deaths": list,
    "last_output": list,
    "stacks": str,
    "threads": list,
    "note": str,
}


class Shelf:
    """Used from one thread; nothing here blocks it but `close`, and nothing raises."""

    def __init__(self, state: Path | None, keep: int, max_bytes: int, endpoint: str) -> None:
        """Keeps at most `keep` files of `max_bytes` together below `state`; none where either is missing.

        The newest bundle of each slot that is there already is read meanwhile, see `former`.
        """
        self._folder = None if state is None else state / "flight"
        self._keep = keep
        self._max_bytes = max_bytes
        self._endpoint = endpoint
        self._former: dict[int, Bundle] = {}
        self._files: KeptFiles | None = None
        self._reader: threading.Thread | None = None
        if self._folder is not None:
            self._files = KeptFiles(self._folder, SUFFIX, keep, max_bytes, NEWEST)
        if self.folder is not None and self._files is not None:
            # The disk may be slow, or not answer at all: the pool starts without it.
            arguments = (self.folder, self._files.newer)
            self._reader = threading.Thread(target=self._read, args=arguments, name="flight", daemon=True)
            self._reader.start()

    @property
    def folder(self) -> Path | None:
        """Where bundles are kept; None where they are not."""
        return self._folder if self._keep else None

    def adopt(self, keep: int, max_bytes: int) -> None:
        """Other bounds, for what is kept from now on."""
        self._keep, self._max_bytes = keep, max_bytes
        if self._files is not None:
            self._files.adopt(keep, max_bytes)

    @property
    def former(self) -> Mapping[int, Bundle]:
        """By slot: the newest bundle that a former pool of this endpoint has left. Empty until it has been read."""
        return self._former

    def wait_read(self, timeout_s: float) -> None:
        """Until `former` is what it will be, or for so long."""
        if self._reader is not None:
            self._reader.join(timeout_s)

    def put(self, bundle: Bundle) -> None:
        if self._files is None or not self._keep:
            return
        data = json.dumps(bundle, indent=1).encode()
        slot, incarnation = bundle["slot"], bundle["incarnation"]
        if len(data) > self._max_bytes:
            _not_kept(slot, incarnation, f"it has {len(data)} bytes, [recorder] max_bytes is {self._max_bytes}")
            return
        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S.%f")

        def tell(_: Path, failure: str | None) -> None:
            if failure is not None:
                _not_kept(slot, incarnation, failure)

        self._files.write(f"{stamp}-slot{slot}-{incarnation}", [data], tell)

    def put_fault(self, report: dict[str, Any]) -> None:
        """The report of the pool's own fault, beside the bundles and within their bounds; the log says where."""
        if self._files is None or not self._keep:
            _fault_not_kept("there is no state folder, or [recorder] keep is 0")
            return
        data = json.dumps(report).encode()
        if len(data) > self._max_bytes:
            _fault_not_kept(f"it has {len(data)} bytes, [recorder] max_bytes is {self._max_bytes}")
            return

        def tell(path: Path, failure: str | None) -> None:
            if failure is not None:
                _fault_not_kept(failure)
                return
            log.critical("what led to it is written down in %s", path, extra=about("fault_report", path=str(path)))

        stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S.%f")
        self._files.write(f"{stamp}-pool-{os.getpid()}", [data], tell)

    def close(self, timeout_s: float) -> None:
        """Waits so long at most for what is being written."""
        if self._files is not None:
            self._files.close(timeout_s)

    def _read(self, folder: Path, newer: NewerFiles) -> None:
        try:
            names = sorted(os.listdir(folder), reverse=True)[:MOST_LISTED]
        except OSError:
            return  # there is none yet; whoever writes the first one hears of anything else
        found: dict[int, Bundle] = {}
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None or int(match[1]) in found:
                continue
            bundle = None if newer.has(folder / name) else _bundle(folder / name)
            if bundle is not None and bundle["slot"] == int(match[1]) and bundle["endpoint"] == self._endpoint:
                found[bundle["slot"]] = bundle
        self._former = found


def _not_kept(slot: int, incarnation: int, why: str) -> None:
    extra = about("bundle_not_kept", slot=slot, incarnation=incarnation, reason=why)
    log.warning("slot %d: the bundle of incarnation %d is not kept: %s", slot, incarnation, why, extra=extra)


def _fault_not_kept(why: str) -> None:
    log.critical("what led to it is not written down: %s", why, extra=about("fault_report_not_kept", reason=why))


def _bundle(path: Path) -> Bundle | None:
    """What a file says; None for one that is not a bundle of this format, whatever it is."""
    try:
        # Not blocking: opening a pipe would wait for somebody who writes.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > LARGEST:
                return None
            raw = json.loads(file.read(LARGEST))
    except (OSError, ValueError, RecursionError):
        return None
    right = isinstance(raw, dict) and all(isinstance(raw.get(key), kind) for key, kind in _KINDS.items())
    return raw if right and raw["format"] == FORMAT else None

"""The bundles on the disk: JSON, a file each, and what former pools of the same endpoint have left there."""

import json
import logging
import os
import re
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pool.kept import KeptFiles, read_file
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


class Shelf(KeptFiles):
    """Used from one thread; nothing here blocks it but `close`, and nothing raises."""

    def __init__(self, state: Path | None, keep: int, max_bytes: int, endpoint: str) -> None:
        """Keeps at most `keep` files of `max_bytes` together below `state`; none where either is missing.

        The newest bundle of each slot that is there already is read meanwhile, see `former`.
        """
        super().__init__(None if state is None else state / "flight", SUFFIX, keep, max_bytes, NEWEST, "recorder")
        self.former: Mapping[int, Bundle] = {}
        """By slot: the newest bundle that a former pool of this endpoint has left. Empty until it has been read."""
        self._endpoint = endpoint
        self._reader: threading.Thread | None = None
        if self.folder is not None:
            # The disk may be slow, or not answer at all: the pool starts without it.
            self._reader = threading.Thread(target=self._read, args=(self.folder,), name="flight", daemon=True)
            self._reader.start()

    def wait_read(self, timeout_s: float) -> None:
        """Until `former` is what it will be, or for so long."""
        if self._reader is not None:
            self._reader.join(timeout_s)

    def put(self, bundle: Bundle) -> None:
        if self.folder is None:
            return
        slot, incarnation = bundle["slot"], bundle["incarnation"]

        def tell(_: Path, failure: str | None) -> None:
            if failure is not None:
                extra = about("bundle_not_kept", slot=slot, incarnation=incarnation, reason=failure)
                text = "slot %d: the bundle of incarnation %d is not kept: %s"
                log.warning(text, slot, incarnation, failure, extra=extra)

        self.write(f"{_stamp()}-slot{slot}-{incarnation}", [json.dumps(bundle, indent=1).encode()], tell)

    def put_fault(self, report: dict[str, Any]) -> None:
        """The report of the pool's own fault, beside the bundles and within their bounds; the log says where."""

        def tell(path: Path, failure: str | None) -> None:
            if failure is None:
                log.critical("what led to it is written down in %s", path, extra=about("fault_report", path=str(path)))
                return
            extra = about("fault_report_not_kept", reason=failure)
            log.critical("what led to it is not written down: %s", failure, extra=extra)

        if self.folder is None:
            tell(Path(), "there is no state folder, or [recorder] keep is 0")
            return
        self.write(f"{_stamp()}-pool-{os.getpid()}", [json.dumps(report).encode()], tell)

    def _read(self, folder: Path) -> None:
        try:
            names = sorted(os.listdir(folder), reverse=True)[:MOST_LISTED]
        except OSError:
            return  # there is none yet; whoever writes the first one hears of anything else
        found: dict[int, Bundle] = {}
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None or int(match[1]) in found:
                continue
            bundle = None if self.newer.has(folder / name) else _bundle(folder / name)
            if bundle is not None and bundle["slot"] == int(match[1]) and bundle["endpoint"] == self._endpoint:
                found[bundle["slot"]] = bundle
        self.former = found


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S.%f")


def _bundle(path: Path) -> Bundle | None:
    """What a file says; None for one that is not a bundle of this format, whatever it is."""
    try:
        data = read_file(path, LARGEST + 1)
        raw: Any = json.loads(data) if data is not None and len(data) <= LARGEST else None
    except (OSError, ValueError, RecursionError):
        return None
    right = isinstance(raw, dict) and all(isinstance(raw.get(key), kind) for key, kind in _KINDS.items())
    return raw if right and raw["format"] == FORMAT else None

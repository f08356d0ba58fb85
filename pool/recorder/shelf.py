"""The crash reports on the disk: JSON, a file each, and what former pools of the same endpoint have left there."""

import contextlib
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

__all__ = ["FORMAT", "MOST_DEATHS_LISTED", "CrashReport", "Shelf", "line_of"]

log = logging.getLogger("pool.recorder")

FORMAT = 1  # of reports
NAME = "crash_reports"  # of the folder
FORMER_NAME = "flight"  # of the same, in version 1
NEWEST = max(FORMAT, FAULT_FORMAT)  # one row of numbers for all in the folder: the next of either is one above it
SUFFIX = ".json"
LARGEST = 4 << 20  # bytes; what is larger is none of ours
MOST_LISTED = 10_000
MOST_DEATHS_LISTED = 50

CrashReport = dict[str, Any]

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

        Those that are there already are read meanwhile, see `former` and `former_deaths`.
        """
        super().__init__(None if state is None else state / NAME, SUFFIX, keep, max_bytes, NEWEST, "crash_reports")
        self.former: Mapping[int, CrashReport] = {}
        """By slot: the newest report that a former pool of this endpoint has left. Empty until it has been read."""
        self.former_deaths: list[CrashReport] = []
        """A line each of the last workers of former pools of this endpoint, the newest first."""
        self._endpoint = endpoint
        self._reader: threading.Thread | None = None
        if self.folder is not None:
            # The disk may be slow, or not answer at all: the pool starts without it.
            self._reader = threading.Thread(target=self._read, args=(self.folder,), name="crash reports", daemon=True)
            self._reader.start()

    def wait_read(self, timeout_s: float) -> None:
        """Until `former` and `former_deaths` are what they will be, or for so long."""
        if self._reader is not None:
            self._reader.join(timeout_s)

    def put(self, report: CrashReport) -> None:
        if self.folder is None:
            return
        slot, incarnation = report["slot"], report["incarnation"]

        def tell(_: Path, failure: str | None) -> None:
            if failure is not None:
                extra = about("crash_report_not_kept", slot=slot, incarnation=incarnation, reason=failure)
                text = "slot %d: the crash report of incarnation %d is not stored: %s"
                log.warning(text, slot, incarnation, failure, extra=extra)

        self.write(f"{_stamp()}-slot{slot}-{incarnation}", [json.dumps(report, indent=1).encode()], tell)

    def put_fault(self, report: dict[str, Any]) -> None:
        """The report of the pool's own fault, beside the reports and within their bounds; the log says where."""

        def tell(path: Path, failure: str | None) -> None:
            if failure is None:
                log.critical("the events that led to it are in %s", path, extra=about("fault_report", path=str(path)))
                return
            extra = about("fault_report_not_kept", reason=failure)
            log.critical("the events that led to it are not stored: %s", failure, extra=extra)

        if self.folder is None:
            tell(Path(), "there is no state folder, or [crash_reports] keep is 0")
            return
        self.write(f"{_stamp()}-pool-{os.getpid()}", [json.dumps(report).encode()], tell)

    def _read(self, folder: Path) -> None:
        with contextlib.suppress(OSError):  # there is none of the former name, or one of this name already
            folder.with_name(FORMER_NAME).rename(folder)
        try:
            names = sorted(os.listdir(folder), reverse=True)[:MOST_LISTED]
        except OSError:
            return  # there is none yet; whoever writes the first one hears of anything else
        found: dict[int, CrashReport] = {}
        deaths: list[CrashReport] = []
        for name in names:
            match = _NAME.fullmatch(name)
            if match is None or (int(match[1]) in found and len(deaths) >= MOST_DEATHS_LISTED):
                continue
            report = None if self.newer.has(folder / name) else _parsed(folder / name)
            if report is not None and report["slot"] == int(match[1]) and report["endpoint"] == self._endpoint:
                found.setdefault(report["slot"], report)
                deaths.append(line_of(report))
        self.former, self.former_deaths = found, deaths


def line_of(report: CrashReport) -> dict[str, Any]:
    """What a list of deaths says of it."""
    return {key: report[key] for key in ("slot", "incarnation", "device", "died_at", "exit", "killed_for")}


def _stamp() -> str:
    return datetime.now(UTC).strftime("%Y%m%d-%H%M%S.%f")


def _parsed(path: Path) -> CrashReport | None:
    """What a file says; None for one that is not a report of this format, whatever it is."""
    try:
        data = read_file(path, LARGEST + 1)
        raw: Any = json.loads(data) if data is not None and len(data) <= LARGEST else None
    except (OSError, ValueError, RecursionError):
        return None
    right = isinstance(raw, dict) and all(isinstance(raw.get(key), kind) for key, kind in _KINDS.items())
    return raw if right and raw["format"] == FORMAT else None

"""Drives an HTTP server with `wrk`: C and one body made beforehand, far cheaper than any client in Python."""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["WrkFailed", "WrkRun", "available", "drive"]

MARGIN_S = 60.0
SCRIPT = """\
function init(arguments)
    local file = assert(io.open(arguments[1], "rb"))
    wrk.method = "POST"
    wrk.body = file:read("*a")
    file:close()
end

function done(summary, latency, requests)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format('{"requests": %d, "seconds": %.6f, "p50": %.6f, "failed": %d}\\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, failed))
end
"""


class WrkFailed(Exception):
    """It is missing, or requests failed."""


@dataclass(frozen=True, slots=True)
class WrkRun:
    """Requests a second, and the median of their times in seconds."""

    rate: float
    p50: float


def available() -> None:
    """Raises `WrkFailed` with what to install."""
    if shutil.which("wrk") is None:
        raise WrkFailed("wrk is not installed (Debian, Ubuntu: apt install wrk)")


def drive(url: str, body: Path, headers: Mapping[str, str], connections: int, seconds: float, folder: Path) -> WrkRun:
    """For whole seconds, rounded up. Raises `WrkFailed` where a single request failed."""
    script = folder / "post.lua"
    script.write_text(SCRIPT)
    threads = min(connections, max(1, (os.cpu_count() or 1) // 2))  # the server needs the others
    argv = ["wrk", "-t", str(threads), "-c", str(connections), "-d", f"{max(1, round(seconds + 0.49))}s"]
    argv += ["--timeout", "30s", "-s", str(script)]
    for name, value in headers.items():
        argv += ["-H", f"{name}: {value}"]
    argv += [url, "--", str(body)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + MARGIN_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WrkFailed(str(error)) from None
    return read(done.stdout, done.stderr)


def read(output: str, errors: str = "") -> WrkRun:
    """What the script's `done` printed, among wrk's own words."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    if not lines:
        raise WrkFailed((errors.strip() or output.strip() or "wrk said nothing")[-300:])
    told = json.loads(lines[-1])
    if told["failed"] or not told["requests"]:
        raise WrkFailed(f"{told['failed']} of {told['requests']} requests failed")
    return WrkRun(told["requests"] / told["seconds"], told["p50"])

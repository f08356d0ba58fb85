"""Drives an HTTP server with `wrk`: C and bodies made beforehand, far cheaper than any client in Python.

The bodies take turns, as our own clients' rows do. What wrk pays for that, and for looking at each answer, is 1 to 2 µs
of processor time a request, and a copy of the body.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["WrkFailed", "WrkRun", "available", "drive", "write_bodies"]

MARGIN_S = 60.0
KEPT = 256
"""So many answers of each thread are kept to be checked when the turn is over, as of our own ways.

The first ones all, then one of 17, which is no divisor of the number of rows; the later ones replace the earlier.
"""
SCRIPT = """\
-- Global, or `done` would not find them: wrk runs it in a Lua of its own.
got, refused, kept = 0, 0, {}
local requests, count, at = {}, 0, 0
local places, most, stride, stored = {}, 0, 17, 0
local hex = {}  -- wrk hands over texts up to their first zero
for byte = 0, 255 do
    hex[string.char(byte)] = string.format("%02x", byte)
end

function init(arguments)
    count = tonumber(arguments[2])
    for number = 0, count - 1 do
        local file = assert(io.open(arguments[1] .. "/" .. number, "rb"))
        requests[number] = wrk.format("POST", nil, nil, file:read("*a"))
        file:close()
    end
    most = tonumber(arguments[3])
    for number = 0, most - 1 do
        places[number] = "k" .. number  -- wrk hands over tables with names only
    end
end

function request()
    at = (at + 1) % count
    return requests[at]
end

function response(status, headers, body)
    if status ~= 200 then
        refused = refused + 1
        return
    end
    local skipped = headers["Inference-Header-Content-Length"]  -- Triton's own, before the tensor
    if skipped then
        body = body:sub(tonumber(skipped) + 1)
    end
    if got < most or got % stride == 0 then
        kept[places[stored % most]] = body:gsub(".", hex)
        stored = stored + 1
    end
    got = got + 1
end

local threads = {}
function setup(thread)
    threads[#threads + 1] = thread
end

function done(summary, latency, requests)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.timeout
    local answers = {}
    for _, thread in ipairs(threads) do
        failed = failed + thread:get("refused")
        for _, body in pairs(thread:get("kept")) do
            answers[#answers + 1] = '"' .. body .. '"'
        end
    end
    io.write(string.format('{"requests": %d, "seconds": %.6f, "p50": %.6f, "failed": %d, "answers": [%s]}\\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e6, failed, table.concat(answers, ", ")))
end
"""


class WrkFailed(Exception):
    """It is missing, or requests failed."""


@dataclass(frozen=True, slots=True)
class WrkRun:
    """Requests a second, the median of their times in seconds, and some answers, whichever requests they are to."""

    rate: float
    p50: float
    answers: tuple[bytes, ...]


def available() -> None:
    """Raises `WrkFailed` with what to install."""
    if shutil.which("wrk") is None:
        raise WrkFailed("wrk is not installed (Debian, Ubuntu: apt install wrk)")


def write_bodies(folder: Path, bodies: Sequence[bytes]) -> None:
    """For `drive`."""
    folder.mkdir()
    for number, body in enumerate(bodies):
        (folder / str(number)).write_bytes(body)


def drive(url: str, bodies: Path, headers: Mapping[str, str], connections: int, seconds: float, folder: Path) -> WrkRun:
    """For whole seconds, rounded up. Raises `WrkFailed` where a single request failed, or was answered by no 200."""
    script = folder / "post.lua"
    script.write_text(SCRIPT)
    threads = min(connections, max(1, (os.cpu_count() or 1) // 2))  # the server needs the others
    argv = ["wrk", "-t", str(threads), "-c", str(connections), "-d", f"{max(1, round(seconds + 0.49))}s"]
    argv += ["--timeout", "30s", "-s", str(script)]
    for name, value in headers.items():
        argv += ["-H", f"{name}: {value}"]
    argv += [url, "--", str(bodies), str(len(list(bodies.iterdir()))), str(KEPT)]
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
    answers = tuple(bytes.fromhex(answer) for answer in told["answers"])
    return WrkRun(told["requests"] / told["seconds"], told["p50"], answers)

"""mosec under wrk, which is C and sends one request, made beforehand."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np

from benchmarks.models import IMAGE, TINY, check, rows_of

START_S = 60.0
# Workers, and max_batch_size as the pool's models have it. With less than 64 at 32 connections mosec is 2 to 3 × faster
# than it is here: it waits for full batches, 1 ms long at least.
SETTINGS = {(TINY, 256): (2, 64), (TINY, 32): (1, 64), (IMAGE, 64): (2, 16)}


class Mosec:
    """A server, ready when it is made. Raises `OSError` if mosec or wrk is not there."""

    def __init__(self, python: str, folder: Path, model: str, connections: int) -> None:
        if shutil.which("wrk") is None:
            raise FileNotFoundError("there is no wrk (Debian: apt-get install wrk)")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._url, self._connections = f"http://127.0.0.1:{port}/inference", connections
        self._script, body = folder / "post.lua", folder / "body"
        row = rows_of(model)[0]
        body.write_bytes(row.tobytes())
        self._script.write_text(f'wrk.method = "POST" wrk.body = io.open("{body}", "rb"):read("*a")')
        argv = [python, "-m", "benchmarks.mosec_server", folder / model, *SETTINGS[model, connections]]
        argv += ["--address", "127.0.0.1", "--port", port, "--path", folder / f"mosec-{port}", "--timeout", 60_000]
        self._process = subprocess.Popen(
            [*map(str, argv)], cwd=Path(__file__).parents[1], stderr=subprocess.DEVNULL, start_new_session=True
        )
        until = time.monotonic() + START_S
        while True:
            try:
                with urllib.request.urlopen(self._url, row.tobytes(), START_S) as response:
                    check(model, row, np.frombuffer(response.read(), np.float32))
                return
            except OSError as error:
                if self._process.poll() is not None or time.monotonic() > until:
                    self.end()
                    raise OSError(f"it does not serve ({error}); has {python} mosec and tensorflow?") from None
                time.sleep(0.1)

    def rate(self, seconds: float) -> float:
        """Requests a second."""
        argv = ["wrk", "-t", "1", "-c", str(self._connections), "-d", f"{round(seconds)}s", "--timeout", "30s"]
        argv += ["-s", str(self._script), self._url]
        told = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + START_S, check=True).stdout
        assert not re.search("Non-2xx|Socket errors", told), told
        return float(re.findall(r"Requests/sec:\s+([\d.]+)", told)[0])

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

"""HTTP under wrk, which is C and sends one request, made beforehand: mosec, and the door."""

import json
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
SETTINGS = {(TINY, 256): (2, 64), (TINY, 64): (1, 64), (TINY, 32): (1, 64), (IMAGE, 64): (2, 16)}


def wrk(url: str, connections: int, seconds: float, folder: Path, body: bytes, **headers: object) -> float:
    """Requests a second."""
    (folder / "body").write_bytes(body)
    lines = [f'wrk.method = "POST" wrk.body = io.open("{folder}/body", "rb"):read("*a")']
    lines += [f'wrk.headers["{name.replace("_", "-")}"] = "{value}"' for name, value in headers.items()]
    (folder / "post.lua").write_text("\n".join(lines))
    argv = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{round(seconds)}s", "--timeout", "30s"]
    argv += ["-s", str(folder / "post.lua"), url]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + START_S, check=True).stdout
    assert not re.search("Non-2xx|Socket errors", told), told
    return float(re.findall(r"Requests/sec:\s+([\d.]+)", told)[0])


def open_inference(url: str, model: str, connections: int, seconds: float, folder: Path) -> float:
    """The door's binary form."""
    row = rows_of(model)[0]
    tensor = {"name": "x", "datatype": "FP32", "shape": row.shape, "parameters": {"binary_data_size": row.nbytes}}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    body, length = head + row.tobytes(), len(head)
    url = f"{url}/v2/models/{model}/infer"
    request = urllib.request.Request(url, body, {"Inference-Header-Content-Length": str(length)})
    with urllib.request.urlopen(request, timeout=START_S) as response:
        answer = response.read()[int(response.headers["Inference-Header-Content-Length"]) :]
        check(model, row, np.frombuffer(answer, np.float32))
    return wrk(url, connections, seconds, folder, body, Inference_Header_Content_Length=length)


class Mosec:
    """A server, ready when it is made. Raises `OSError` if mosec or wrk is not there."""

    def __init__(self, python: str, folder: Path, model: str, connections: int) -> None:
        if shutil.which("wrk") is None:
            raise FileNotFoundError("there is no wrk (Debian: apt-get install wrk)")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self._url, self._connections = f"http://127.0.0.1:{port}/inference", connections
        self._folder, row = folder, rows_of(model)[0]
        self._body = row.tobytes()
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
        return wrk(self._url, self._connections, seconds, self._folder, self._body)

    def end(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

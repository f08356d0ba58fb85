"""HTTP under wrk, which is C and sends one request, made beforehand: mosec, and the door."""

import os
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from math import ceil
from pathlib import Path

import httpx
import numpy as np
import tritonclient.http as triton

from benchmarks.models import IMAGE, TINY, check, rows_of
from support.doors import free_address
from support.pools import WAIT_S, until

# Workers, and max_batch_size as the pool's models have it. With less than 64 at 32 connections mosec is 2 to 3 × faster
# than it is here: it waits for full batches, 1 ms long at least.
SETTINGS = {(TINY, 256): (2, 64), (TINY, 64): (1, 64), (TINY, 32): (1, 64), (IMAGE, 64): (2, 16)}


def wrk(url: str, connections: int, seconds: float, folder: Path, body: bytes, **headers: object) -> float:
    """Requests a second."""
    (folder / "body").write_bytes(body)
    lines = [f'wrk.method = "POST" wrk.body = io.open("{folder}/body", "rb"):read("*a")']
    lines += [f'wrk.headers["{name.replace("_", "-")}"] = "{value}"' for name, value in headers.items()]
    (folder / "post.lua").write_text("\n".join(lines))
    argv = ["wrk", "-t", "1", "-c", str(connections), "-d", f"{ceil(seconds)}s", "--timeout", "30s"]
    argv += ["-s", str(folder / "post.lua"), url]
    told = subprocess.run(argv, capture_output=True, text=True, timeout=seconds + WAIT_S, check=True).stdout
    assert not re.search("Non-2xx|Socket errors", told), told
    return float(re.findall(r"Requests/sec:\s+([\d.]+)", told)[0])


def open_inference(address: str, model: str, connections: int, seconds: float, folder: Path) -> float:
    """The door's binary form."""
    row = rows_of(model)[0]
    x = triton.InferInput("x", row.shape, "FP32").set_data_from_numpy(row)
    with closing(triton.InferenceServerClient(address)) as client:
        check(model, row, client.infer(model, [x]).as_numpy("y"))
        body, length = client.generate_request_body([x])
    url = f"http://{address}/v2/models/{model}/infer"
    return wrk(url, connections, seconds, folder, body, Inference_Header_Content_Length=length)


@contextmanager
def mosec(python: str, folder: Path, model: str, connections: int) -> Iterator[Callable[[float], float]]:
    """Requests a second, measured for so many seconds. Raises `OSError` if mosec is not there."""
    address, row = free_address(), rows_of(model)[0]
    url, port = f"http://{address}/inference", address.rpartition(":")[2]
    argv = [python, "-m", "benchmarks.mosec_server", folder / model, *SETTINGS[model, connections]]
    argv += ["--address", "127.0.0.1", "--port", port, "--path", folder / f"mosec-{port}", "--timeout", 60_000]
    process = subprocess.Popen(
        [*map(str, argv)], cwd=Path(__file__).parents[1], stderr=subprocess.DEVNULL, start_new_session=True
    )

    def serves() -> bool:
        if process.poll() is not None:
            raise OSError(f"it does not serve; has {python} mosec and tensorflow?")
        with suppress(httpx.TransportError):
            answer = httpx.post(url, content=row.tobytes(), timeout=WAIT_S)
            if answer.is_success:
                check(model, row, np.frombuffer(answer.content, np.float32))
            return answer.is_success
        return False

    try:
        until(serves, "mosec")
        yield lambda seconds: wrk(url, connections, seconds, folder, row.tobytes())
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

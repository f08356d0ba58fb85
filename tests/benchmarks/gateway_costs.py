"""`python tests/benchmarks/gateway_costs.py`: what a request costs gateway, pool and worker in processor time."""

import json
import os
import socket
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.pool_process import pool_process  # it is beside this folder

SECONDS = 5.0
LOADS = (("echo", 1, 16), ("echo", 64, 16), ("rows", 64, 16), ("echo", 16, 150_528))
"""The model, connections, and floats of a request. Those of `rows` are joined."""
CONFIG = """
[pool]
endpoint = "@endpoint@"
devices = ["cpu"]
[gateway]
listen = "127.0.0.1:{port}"
[[model]]
name = "echo"
path = "stub:echo"
[[model]]
name = "rows"
path = "stub:rows"
batching = "always"
"""
SIGNATURES: dict[str, dict[str, str]] = {"echo": {}, "rows": {"signature": "double"}}


def processor_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def request(model: str, floats: int) -> bytes:
    x = {"name": "x", "shape": [floats], "datatype": "FP32", "parameters": {"binary_data_size": 4 * floats}}
    head = json.dumps({"inputs": [x], "parameters": {"binary_data_output": True, **SIGNATURES[model]}}).encode()
    sizes = f"Inference-Header-Content-Length: {len(head)}\r\nContent-Length: {len(head) + 4 * floats}\r\n"
    start = f"POST /v2/models/{model}/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    return f"{start}{sizes}\r\n".encode() + head + bytes(4 * floats)


def ask(port: int, asked: bytes, until: float, done: list[int]) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection, connection.makefile("rb") as answers:
        while time.monotonic() < until:
            connection.sendall(asked)
            assert b" 200 " in answers.readline()
            size = 0
            while (line := answers.readline()) != b"\r\n":
                name, _, value = line.partition(b":")
                size = int(value) if name.lower() == b"content-length" else size
            assert len(answers.read(size)) == size
            done.append(1)


def main() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pool_process(CONFIG.format(port=port)) as pool:
        with pool.client() as client:
            status = client.status()
        assert status.gateway is not None
        pids = {
            "gateway": status.gateway.processes[0].pid,
            "pool": pool.pid,
            "worker": status.slots[0].pid,
        }
        for model, connections, floats in LOADS:
            before = {name: processor_s(pid or 0) for name, pid in pids.items()}
            done: list[int] = []
            arguments = (port, request(model, floats), time.monotonic() + SECONDS, done)
            threads = [threading.Thread(target=ask, args=arguments) for _ in range(connections)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(SECONDS + 60)
            costs = {name: (processor_s(pid or 0) - before[name]) / len(done) * 1e6 for name, pid in pids.items()}
            told = ", ".join(f"{name} {cost:.0f} µs" for name, cost in costs.items())
            print(f"{model}, {connections} connections, {4 * floats:,} bytes: {told}; {len(done)} requests")  # noqa: T201


if __name__ == "__main__":
    main()

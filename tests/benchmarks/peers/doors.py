"""The pool's gateway and a peer in turn, both under `wrk`: a tensor as bytes there and back, with keep-alive."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.aims import GATEWAY, RUN
from benchmarks.cases import Case, WrongAnswer
from benchmarks.line_process import Ended
from benchmarks.ours import Ours
from benchmarks.peers import wrk
from benchmarks.peers.bouts import begun, probe
from benchmarks.peers.environment import NotInstalled, install
from benchmarks.peers.peers import OCTETS, PEERS
from benchmarks.peers.server import HttpServer, NotServing, free_port
from benchmarks.run import Run
from pool import Client

__all__ = ["doors"]

CONNECTIONS = {"mlp": 64, "image": 16}
AIMED = {
    ("mosec", "mlp"): "gateway_mosec",
    ("litserve", "mlp"): "gateway_litserve",
    ("mosec", "image"): "gateway_image",
}
MAY_COST_S = 0.3e-3
WHY = (NotInstalled, NotServing, Ended, wrk.WrkFailed, WrongAnswer)


def doors(run: Run, client: Client, names: Sequence[str], environments: Path) -> None:
    """What fails is a row that says why."""
    for (name, model), aim in AIMED.items():
        if name not in names:
            continue
        try:
            wrk.available()
            python = install(environments, name, PEERS[name].requirements)
            _bout(run, client, name, model, python, aim)
        except WHY as error:
            run.say(f"the gateway and {name}, {model}: {error}")
            run.failures[f"{model}, the gateway and {name}"] = str(error)
            run.missing(aim, str(error))
    try:
        wrk.available()
        _alone(run, client)
    except WHY as error:
        run.failures["mlp, the gateway, one connection"] = str(error)
        run.missing("gateway_alone", str(error))


def _gateway(run: Run, client: Client, model: str, folder: Path) -> HttpServer:
    """One process, for the pool that the client has."""
    turns = run.references[model].turns
    port = free_port()
    listen = f"127.0.0.1:{port}"
    argv = [sys.executable, "-m", "pool", "gateway", "--endpoint", client.endpoint, "--listen", listen]
    before = _header(turns.case, turns.rows[0].nbytes)
    headers = {**OCTETS, "Inference-Header-Content-Length": str(len(before))}
    folder.mkdir(exist_ok=True)
    return HttpServer(argv, {}, f"http://{listen}/v2/models/{model}/infer", headers, turns, folder, before)


def _header(case: Case, size_bytes: int) -> bytes:
    """What stands before the tensor of each row."""
    size = {"binary_data_size": size_bytes}
    tensor = {"name": case.input, "shape": [1, *case.row], "datatype": "FP32", "parameters": size}
    output = {"name": case.output, "parameters": {"binary_data": True}}
    request = {"inputs": [tensor], "outputs": [output], "parameters": {"signature": case.signature}}
    return json.dumps(request, separators=(",", ":")).encode()


def _bout(run: Run, client: Client, name: str, model: str, python: Path, aim: str) -> None:
    peer, connections = PEERS[name], CONNECTIONS[model]
    folder = run.folder / f"gateway-{name}-{model}"
    folder.mkdir()
    begin = begun(run, peer, python, model, folder)
    setting = probe(run, peer, model, begin, (connections,)).best_at(connections)
    run.settings[f"{model}, {name}, {connections} connections"] = str(setting)
    server = begin(setting)
    try:
        ours = _gateway(run, client, model, folder / "ours")
        try:
            ways = {
                GATEWAY: lambda: ours.rate(connections, run.seconds),
                name: lambda: server.rate(connections, run.seconds),
            }
            samples = run.measure(f"{model}, {connections} connections, the gateway and {name}", "rows/s", ways)
            run.conclude(aim, samples, name)
        finally:
            ours.end()
    finally:
        server.end()


def _alone(run: Run, client: Client) -> None:
    ours = Ours(client, run.references["mlp"].turns)
    gateway = _gateway(run, client, "mlp", run.folder / "gateway-alone")
    try:
        ways = {RUN: run.timed(ours.alone), GATEWAY: lambda: gateway.alone(run.seconds)}
        samples = run.measure("mlp, one connection, p50", "s", ways)
        bound = "client.run + 0.3 ms"
        run.conclude("gateway_alone", {**samples, bound: [each + MAY_COST_S for each in samples[RUN]]}, bound)
    finally:
        gateway.end()

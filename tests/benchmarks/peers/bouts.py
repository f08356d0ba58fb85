"""The pool and a peer in turn, for each model; the peer with the settings that a probe found best."""

from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.cases import WrongAnswer
from benchmarks.line_process import Ended
from benchmarks.ours import Ours
from benchmarks.peers import wrk
from benchmarks.peers.environment import NotInstalled, install
from benchmarks.peers.peers import IN_FLIGHT, PEERS, Peer, Setting, start
from benchmarks.peers.server import NotServing, Server
from benchmarks.rounds import fastest
from benchmarks.run import Run
from pool import Client

__all__ = ["MODELS", "bouts"]

MODELS = ("mlp", "image", "cnn", "guesslang")
AIMS = {("mosec", "mlp"): "mosec", ("mosec", "image"): "image_mosec"}
PROBE_S = 2.0
WHY = (NotInstalled, NotServing, Ended, wrk.WrkFailed, WrongAnswer)


def bouts(run: Run, client: Client, names: Sequence[str], models: Sequence[str], environments: Path) -> None:
    """What fails is a row that says why, and the next one's turn."""
    for name in names:
        peer = PEERS[name]
        try:
            if peer.by_http:
                wrk.available()
            run.say(f"installing {name}, if it is not there")
            python = install(environments, name, peer.requirements)
        except WHY as error:
            _failed(run, name, models, error)
            continue
        for number, model in enumerate(models):
            try:
                _bout(run, client, peer, python, model)
            except NotServing as error:  # another model would take as long to say the same
                _failed(run, name, models[number:], error)
                break
            except WHY as error:
                _failed(run, name, (model,), error)


def _failed(run: Run, name: str, models: Sequence[str], error: Exception) -> None:
    for model in models:
        run.say(f"{name}, {model}: {error}")
        run.failures[f"{model}, {name}"] = str(error)
        if (name, model) in AIMS:
            run.missing(AIMS[name, model], str(error))


def _bout(run: Run, client: Client, peer: Peer, python: Path, model: str) -> None:
    reference = run.references[model]
    turns = reference.turns
    folder = run.folder / f"{peer.name}-{model}"
    folder.mkdir()

    def begin(setting: Setting) -> Server:
        row = turns.rows[0], turns.expected[0]
        return start(peer, setting, python, run.cases[model], run.files(model), row, folder)

    setting, in_flight = _best(run, peer, model, begin)
    ours = Ours(client, turns)
    server = begin(setting)
    try:
        name = f"{peer.name}, {in_flight} in flight"
        run.settings[f"{model}, {peer.name}"] = f"{setting}, {in_flight} in flight"
        flows = {way: run.timed(flow) for way, flow in ours.flows().items()}
        ways = {**flows, name: lambda: server.rate(in_flight, run.seconds)}
        samples = run.measure(f"{model}, the pool and {peer.name}", "rows/s", ways)
        if (peer.name, model) in AIMS:
            run.conclude(AIMS[peer.name, model], samples, fastest(samples, flows), name)
        if model == "mlp":
            alone = {"client.run": run.timed(ours.alone), peer.name: lambda: server.alone(run.seconds)}
            run.measure(f"{model}, the pool and {peer.name}, one at a time, p50", "s", alone)
    finally:
        server.end()


def _best(run: Run, peer: Peer, model: str, begin: Callable[[Setting], Server]) -> tuple[Setting, int]:
    """Raises what the first setting raised, where none works."""
    rates: dict[tuple[int, int], float] = {}
    failure: Exception | None = None
    for number, setting in enumerate(peer.settings):
        run.say(f"probing {peer.name}, {model}: {setting}")
        try:
            server = begin(setting)
        except WHY as error:
            failure = failure or error  # the first is the most telling
            continue
        try:
            for in_flight in IN_FLIGHT:
                rates[number, in_flight] = server.rate(in_flight, PROBE_S)
        except WHY as error:
            failure = failure or error  # the first is the most telling
        finally:
            server.end()
    if not rates:
        assert failure is not None
        raise failure
    number, in_flight = max(rates, key=lambda pair: rates[pair])
    return peer.settings[number], in_flight

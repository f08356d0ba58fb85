"""The pool and a peer in turn, for each model; the peer with the settings that a probe found best."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.aims import BOUT_WAYS, RUN
from benchmarks.cases import WrongAnswer
from benchmarks.crowd import CROWD, Crowd
from benchmarks.line_process import Ended
from benchmarks.ours import Ours
from benchmarks.peers import wrk
from benchmarks.peers.environment import NotInstalled, install
from benchmarks.peers.peers import IN_FLIGHT, PEERS, Peer, Setting, start
from benchmarks.peers.server import NotServing, Server
from benchmarks.run import Run
from pool import Client

__all__ = ["MODELS", "begun", "bouts", "probe"]

MODELS = ("mlp", "image", "cnn", "guesslang")
AIMED = {("mosec", "mlp"): ("submit_mosec", "map_mosec"), ("mosec", "image"): ("image_mosec",)}
CROWDED = ("mosec", "mlp")
PROBE_S = 1.0
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
        for aim in (*AIMED.get((name, model), ()), *(("crowd_mosec",) if (name, model) == CROWDED else ())):
            run.missing(aim, str(error))


def _bout(run: Run, client: Client, peer: Peer, python: Path, model: str) -> None:
    turns = run.references[model].turns
    folder = run.folder / f"{peer.name}-{model}"
    folder.mkdir()
    begin = begun(run, peer, python, model, folder)
    probed = probe(run, peer, model, begin)
    setting, in_flight = probed.best()
    run.settings[f"{model}, {peer.name}"] = f"{setting}, {in_flight} in flight"
    server = begin(setting)
    try:
        ours = Ours(client, turns)
        flows = ours.flows()
        name = f"{peer.name}, {in_flight} in flight"
        ways = {way: run.timed(flows[way]) for way in BOUT_WAYS[model]}
        theirs = {name: lambda: server.rate(in_flight, run.seconds)}
        samples = run.measure(f"{model}, the pool and {peer.name}", "rows/s", {**ways, **theirs})
        for aim in AIMED.get((peer.name, model), ()):
            run.conclude(aim, samples, name)
        if model == "mlp":
            alone = {RUN: run.timed(ours.alone), peer.name: lambda: server.alone(run.seconds)}
            run.measure(f"{model}, the pool and {peer.name}, one at a time, p50", "s", alone)
    finally:
        server.end()
    if (peer.name, model) == CROWDED:
        _crowd(run, client, begin, probed.best_at(CROWD))


def begun(run: Run, peer: Peer, python: Path, model: str, folder: Path) -> Callable[[Setting], Server]:
    """Starts the peer with a setting."""
    turns = run.references[model].turns
    return lambda setting: start(peer, setting, python, turns, run.files(model), folder)


def _crowd(run: Run, client: Client, begin: Callable[[Setting], Server], setting: Setting) -> None:
    """Many small clients: ours in two processes, theirs the connections of one wrk."""
    peer, model = CROWDED
    run.settings[f"{model}, {peer}, {CROWD} clients"] = str(setting)
    server = begin(setting)
    try:
        with Crowd(run, client) as crowd:
            theirs = f"{peer}, {CROWD} in flight"
            ways = {
                RUN: run.timed(lambda seconds: crowd.turn(seconds).rate),
                theirs: lambda: server.rate(CROWD, run.seconds),
            }
            samples = run.measure(f"{model}, {CROWD} clients with one job each, and {peer}", "rows/s", ways)
            run.conclude("crowd_mosec", samples, theirs)
    finally:
        server.end()


@dataclass(frozen=True)
class Probed:
    """Rows a second by the setting's number and by how many were in flight."""

    settings: Sequence[Setting]
    rates: Mapping[tuple[int, int], float]

    def best(self) -> tuple[Setting, int]:
        number, in_flight = max(self.rates, key=lambda pair: self.rates[pair])
        return self.settings[number], in_flight

    def best_at(self, in_flight: int) -> Setting:
        of_those = {number: rate for (number, others), rate in self.rates.items() if others == in_flight}
        return self.settings[max(of_those, key=lambda number: of_those[number])]


def probe(
    run: Run, peer: Peer, model: str, begin: Callable[[Setting], Server], flights: Sequence[int] = IN_FLIGHT
) -> Probed:
    """Raises what the first setting raised, where none works with all that are tried in flight."""
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
            rates.update({(number, in_flight): server.rate(in_flight, PROBE_S) for in_flight in flights})
        except WHY as error:
            failure = failure or error
        finally:
            server.end()
    if not rates:
        assert failure is not None
        raise failure
    return Probed(peer.settings, rates)

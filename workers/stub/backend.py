"""A backend without TensorFlow, for tests of everything around it: it echoes, and does each wrong thing when told.

path = "stub:echo"         a signature a dtype: gives its input back; serving_default is float32
path = "stub:faults"       sleep, fail, kill, kill_once, exit, hang, crash, pid: what the signature's name says
path = "stub:counter"      stateful: `add` returns the total so far, `kill_once` as above; with "stub:counter?FILE" each
                           run of `add` is a line of that file, too, and so is each row of `gated`, of which a negative
                           one waits for FILE.gate; with "FILE&run_ms=5" it has run for so long before it is answered
path = "stub:tally?FILE"   the same, but not called stateful: a job may run again elsewhere
path = "stub:rows"         batchable signatures, see `workers.stub.rows`; "stub:rows?fits=8&run_ms=5&row_ms=1&load_ms=9"
                           is how many rows fit into its device's memory, and what a run, each row and the load take
path = "stub:tell?n=7"     batchable: its default signature gives 7 for each row of x; load_ms as above
path = "stub:touchy"       batchable: y = x; dies of the numbers that a stub is tried with, which no job should be fed
path = "stub:crowd"        batchable: y = x; dies of a run whose rows are not all alike
path = "stub:files?FOLDER" what a line in FOLDER/saved_model.pb says, such as "rows?run_ms=5"; FOLDER may be one of
                           numbered versions, as with SavedModels, of which the pool chooses one
path = "stub:cannot-load"  the load is refused, as TensorFlow's is of a broken folder
path = "stub:load-failed"  the load fails for want of memory
path = "stub:load-exit"    the process ends while it loads
path = "stub:load-hang"    the load never ends
"""

import os
import sys
import threading
import time
from pathlib import Path
from urllib.parse import parse_qsl

from pool.wire.versions import STUB_FILES
from pool.wire.worker_messages import ModelSettings
from workers.backend import CannotLoad, LoadFailed
from workers.stub.device import Device
from workers.stub.lone import counter, echo, faults
from workers.stub.model import StubModel
from workers.stub.rows import crowd, rows, tell, touchy

__all__ = ["StubBackend"]

OPTIONS = {"fits": float("inf"), "run_ms": 0.0, "row_ms": 0.0, "load_ms": 0.0, "n": 0.0}


class StubBackend:
    """Implements `workers.backend.Backend`. Its models share one device."""

    def __init__(self, *_: object) -> None:
        """What TensorFlow's is made with is not looked at."""
        self._device = Device()

    def load(self, settings: ModelSettings) -> StubModel:
        where = f"model {settings.name}: {settings.path}"
        kind, _, query = _stub(settings.path, where).partition("?")
        match kind:
            case "echo":
                return StubModel(settings, echo())
            case "faults":
                return StubModel(settings, faults())
            case "counter":
                return StubModel(settings, counter(*_ledger(where, query)), stateful=True)
            case "tally":
                return StubModel(settings, counter(*_ledger(where, query)), tries=False)  # each run is counted
            case "rows":
                options = _options(where, query)
                time.sleep(options["load_ms"] / 1000)
                times = options["run_ms"] / 1000, options["row_ms"] / 1000
                return StubModel(settings, rows(self._device, options["fits"], *times))
            case "tell":
                options = _options(where, query)
                time.sleep(options["load_ms"] / 1000)
                return StubModel(settings, tell(options["n"]))
            case "touchy":
                return StubModel(settings, touchy())
            case "crowd":
                return StubModel(settings, crowd())
            case "load-failed":
                raise LoadFailed(f"{where} cannot be loaded now: out of memory")
            case "load-exit":
                print("the stub was told to die while it loads", file=sys.stderr)  # noqa: T201  # its last words
                os._exit(9)
            case "load-hang":
                threading.Event().wait()
        raise CannotLoad(f"{where}: the stub backend has no model {kind!r} to load")


def _stub(path: str, where: str) -> str:
    """Which stub it is, and its options; of files, as these say."""
    if not path.startswith(STUB_FILES):
        return path.removeprefix("stub:")
    try:
        return (Path(path.removeprefix(STUB_FILES)) / "saved_model.pb").read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotLoad(f"{where} cannot be read: {error}") from None


def _ledger(where: str, query: str) -> tuple[str, float]:
    """The file, and how long a run takes."""
    ledger, _, rest = query.partition("&")
    return ledger, _options(where, rest)["run_ms"] / 1000


def _options(where: str, query: str) -> dict[str, float]:
    options = dict(OPTIONS)
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in OPTIONS or not value.replace(".", "", 1).isdecimal():
            raise CannotLoad(f"{where}: {name}={value} is not one of the numbers {', '.join(OPTIONS)}")
        options[name] = float(value)
    return options

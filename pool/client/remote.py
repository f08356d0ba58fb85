"""The client of a door, over the Open Inference Protocol's binary form: each job is a request of its own."""

import json
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from types import SimpleNamespace
from typing import Any, NoReturn
from urllib.parse import quote

import httpx
import numpy as np

from pool import errors
from pool.client.channel import Result, Timeline
from pool.client.client import PATIENCE_S, Client
from pool.client.driver import ASK_S
from pool.client.inputs import DOUBTED_S, Plan, Planner, Request, Signatures, checked_timeout
from pool.wire.datatypes import DATATYPES, arrays_of, described, encoded, tensor_info
from pool.wire.signatures import Signature, TensorInfo
from pool.wire.specs import parse_job
from pool.wire.tensors import Array

GRACE_S = 1.0  # after its deadline, the door's word on a job may still be on its way
TIMEOUT_S = 60.0  # of a job whose caller gives none: a door does not tell the pool's own
MOST_THREADS, CONNECT_S, RETRY_S = 64, 5.0, 0.1
HEAD_BYTES = "inference-header-content-length"
STATUS = {401: "NotAllowed", 404: "ModelNotFound", 502: "PoolUnreachable", 503: "Overloaded", 504: "DeadlineExceeded"}


class RemoteClient(Client):
    """A `Client` of a door, for jobs, `models`, `model` and `is_ready`; all else raises `NotAllowed`.

    Raises `PoolUnreachable` if no door answers, `NotAllowed` if it does not take the token, and `Incompatible`.
    `reconnect_timeout`: how long a job waits for a connection. Once sent, it ends in `PoolUnreachable` where that ends.
    """

    def __init__(self, endpoint: str, *, reconnect_timeout: float = PATIENCE_S, token: str = "", verify: str = ""):
        self.planner, self.timeout_s, self._patience_s = Planner(), TIMEOUT_S, 0.0
        self._known: dict[tuple[str, str], tuple[float, Signatures]] = {}
        trusted = ssl.create_default_context(cafile=verify) if verify else True
        headers = {"authorization": f"Bearer {token.strip()}"} if token else {}
        self._settings: Any = {"base_url": endpoint, "headers": headers, "verify": trusted, "limits": httpx.Limits()}
        self.forked()
        self._start_afresh(self)  # type: ignore[arg-type]  # it is all that it needs of a connector
        self._asked("GET", "/v2", time.monotonic() + ASK_S, lambda told, *_: told["extensions"])
        self._patience_s = reconnect_timeout

    def forked(self) -> None:
        """Begins afresh: in the child of a fork, connections and threads are the parent's."""
        self._http, self._threads = httpx.Client(**self._settings), ThreadPoolExecutor(MOST_THREADS, "pool-remote")

    def close(self) -> None:
        """Jobs that were not sent yet end in `PoolUnreachable`."""
        self._http.close()

    def _submitting(self) -> Any:
        return SimpleNamespace(connector=self, submit=lambda *job: self._threads.submit(self._job(*job)))

    def _run(self, *job: Any) -> Any:
        return self._job(*job)()

    def _job(self, plan: Plan, arrays: list[Array], timeout_s: float, priority: int, _: int = 0) -> Any:
        """What is called to run it. The arrays may change from now on. Raises `InvalidInput`."""
        began, spec = time.monotonic(), parse_job(plan.spec)
        if spec.slot != -1 or spec.signature is None:
            raise errors.InvalidInput("the callers of a door have no sessions, and choose no slot; leave it out")
        try:
            tensors = [encoded(array) for array in arrays]
        except TypeError as error:
            raise errors.InvalidInput(f"input {', '.join(map(repr, plan.strings))}: {error}") from None
        named = zip(plan.names, arrays, tensors, strict=True)
        inputs = [described(name, array.dtype, array.shape, binary_data_size=len(data)) for name, array, data in named]
        own: dict[str, Any] = {"timeout": max(1, round(timeout_s * 1e6)), "priority": 101 - priority if priority else 0}
        own |= {"binary_data_output": True, "signature": spec.signature}
        others = json.dumps({"parameters": own, "outputs": [{"name": name} for name in spec.outputs or ()]})
        head = f'{others[:-1]},"inputs":[{",".join(inputs)}]}}'.encode()
        headers, content = {HEAD_BYTES: str(len(head))}, b"".join([head, *tensors])
        path, until = f"/v2/models/{quote(spec.model, '')}/infer", began + timeout_s
        return lambda: self._asked("POST", path, until, lambda *told: result_of(began, *told), content, headers)

    def _learned(self, request: Request) -> Signatures:
        model, name, now = request.model, request.signature or "", time.monotonic()
        if now - self._known.get((model, name), (0.0, {}))[0] > DOUBTED_S:
            path, until = f"/v2/models/{quote(model, '')}?signature={quote(name)}", now + request.timeout_s(ASK_S)
            self._known[model, name] = now, {name: self._asked("GET", path, until, signature_of)}
        return self._known[model, name][1]

    def _ask(self, question: str, timeout: float | None = None, /, name: str = "", **_: Any) -> Any:
        """In the protocol's words: models have `name`, `version`, `state`; one has `inputs` and `outputs`."""
        if question not in ("models", "model", "is_ready"):
            self._through()
        fixed = {"models": ("POST", "/v2/repository/index"), "is_ready": ("GET", "/v2/health/ready")}
        method, path = fixed.get(question, ("GET", f"/v2/models/{quote(name, '')}"))
        until = time.monotonic() + checked_timeout(timeout, ASK_S)
        refusals = [errors.Overloaded] if question == "is_ready" else []
        with suppress(*refusals):
            return self._asked(method, path, until, lambda told, *_: told)
        return False

    def _through(self, *_: Any) -> NoReturn:
        raise errors.NotAllowed("a door runs jobs and tells of models; for all else use a client beside the pool")

    def _asked(self, method: str, path: str, until: float, read: Any, content: bytes = b"", headers: Any = None) -> Any:
        """What is read of the answer: its JSON, its body, and where the JSON ends there. Raises `PoolError`."""
        impatient, url = time.monotonic() + self._patience_s, self._http.base_url
        while (left_s := until - time.monotonic()) > 0.0:
            waits = httpx.Timeout(left_s + GRACE_S, connect=min(left_s, CONNECT_S))
            try:  # from a file, since httpx copies what is left at each write of bytes
                answer = self._http.request(method, path, headers=headers, content=BytesIO(content), timeout=waits)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:  # nothing was sent
                if time.monotonic() >= impatient:
                    raise errors.PoolUnreachable(f"{url}: {error or 'no connection'}") from None
                time.sleep(RETRY_S)
            except httpx.TimeoutException:
                break
            except (httpx.RequestError, RuntimeError) as error:
                raise errors.PoolUnreachable(f"{url} went away before it answered: {error}") from None
            else:
                if answer.status_code != 200:
                    raise refusal(answer)
                try:
                    end = int(answer.headers.get(HEAD_BYTES, len(answer.content)))
                    return read(json.loads(answer.content[:end] or "true"), answer.content, end)
                except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
                    raise errors.Incompatible(f"{url} is no door that this client knows: {error!r}") from None
        raise errors.DeadlineExceeded(f"the timeout is over, and {url} has not answered")


def result_of(began: float, told: Any, body: Any, at: int) -> Result:
    sizes = {each["name"]: each["parameters"]["binary_data_size"] for each in told["outputs"]}
    infos = {each["name"]: tensor_info(each["name"], each["datatype"], each["shape"]) for each in told["outputs"]}
    arrays = arrays_of("output", {name: (info, sizes[name]) for name, info in infos.items()}, body, at)
    result = Result({name: np.require(array, requirements=["A", "W"]) for name, array in arrays.items()})
    result.slot, result.device, result.version = -1, "", str(told["model_version"])
    result.timeline = Timeline(time.monotonic() - began, 0.0, 0.0, 0)
    return result


def signature_of(told: Any, *_: Any) -> Signature:
    """Which inputs may be left out is not told, so any may: the pool refuses what is missing."""
    shapes = {each["name"]: None if each["shape"] == [-1] else tuple(each["shape"]) for each in told["inputs"]}
    inputs = {each["name"]: TensorInfo(DATATYPES[each["datatype"]], shapes[each["name"]]) for each in told["inputs"]}
    return Signature(inputs, {each["name"]: TensorInfo("", None) for each in told["outputs"]}, frozenset(inputs))


def refusal(answer: httpx.Response) -> errors.PoolError:
    """By the name that a door gives, else by the status, which may be a proxy's."""
    text = f"{answer.status_code} {answer.reason_phrase}"
    with suppress(LookupError, RecursionError, TypeError, ValueError):
        text = str(answer.json()["error"])
    return errors.from_wire(answer.headers.get("pool-error") or STATUS.get(answer.status_code, ""), text)

"""Every key of `config.toml`, declared once: its type, its default as one would write it, and what it is.

Nothing is bent: "Gb" would be bits, a text is no number, and `true` is not 1.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, ValidationError, ValidationInfo, field_validator
from pydantic.functional_validators import AfterValidator, BeforeValidator, WrapValidator, model_validator

from pool.endpoint import ipc_path

DEMO = {"name": "digits", "path": str(Path(__file__).parents[2] / "workers" / "demo" / "digits")}
LOOPBACK = re.compile(r"(127(\.\d{1,3}){3}|localhost|\[::1\]):\d+")
STUB = "stub:"  # a model of the tests' backend, which has no files


def quantity(units: Mapping[str, float], most: float, example: str) -> BeforeValidator:
    def read(value: Any) -> Any:
        match = re.fullmatch(r"(\d{1,15}) ?([A-Za-z]+)", value, re.ASCII) if isinstance(value, str) else None
        amount = int(match[1]) * units.get(match[2], 0) if match else 0
        if not 0 < amount <= most:
            raise ValueError(f"{value!r:.80} does not fit; write a whole number with its unit, such as {example}")
        return amount

    return BeforeValidator(read)


def _text(value: str) -> str:
    if not value.isprintable() or not 0 < len(value.encode()) <= 255:
        raise ValueError(f"{value!r:.80} does not fit; write a text of 1 to 255 bytes without control characters")
    return value


def _name(value: str, info: Any) -> str:
    if value in info.context["names"]:
        raise ValueError(f"{value!r} is the name of a model above, too; write another")
    if "@" in value:
        raise ValueError(f"{value!r} has an @, after which clients name a version; write a name without it")
    info.context["names"].append(value)
    return value


def _located(value: str, info: Any) -> str:
    """Absolute. A link such as `models/current` stays one, and a restart follows it anew."""
    if not value.startswith(STUB):
        value = os.path.abspath(os.path.join(info.context["base"], os.path.expanduser(value)))
    value.encode()  # raises where a folder's name is not UTF-8, so no message can carry it
    return value


def _listening(value: str) -> str:
    host, _, port = value.rpartition(":")
    if not re.fullmatch(r"[\w.-]+|\[[0-9A-Fa-f:]+\]", host, re.ASCII) or not re.fullmatch(r"\d{1,5}", port, re.ASCII):
        raise ValueError(f'{value!r:.80} does not fit; write an address and a port, such as "127.0.0.1:8000"')
    if int(port) > 65535:
        raise ValueError(f"{port} is no port; write one from 1 to 65535")
    return value


def _existing(path: str) -> str:
    if not path.startswith(STUB) and not os.path.exists(path):
        raise ValueError(f"{path!r} is not there; write the path of a file or folder that is")
    return path


def such(right: str) -> WrapValidator:
    """Says what would be right, in the place of pydantic's own words."""

    def read(value: Any, inner: Any) -> Any:
        try:
            return inner(value)
        except ValidationError:
            raise ValueError(f"{value!r:.80} does not fit; write {right}") from None

    return WrapValidator(read)


Text = Annotated[str, AfterValidator(_text)]
ClassName = Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
Label = Annotated[Text, Field(pattern=r"\D"), such('a text that is no number, such as "stable"')]
Name = Annotated[Text, AfterValidator(_name)]
Address = Annotated[str, AfterValidator(lambda value: f"ipc://{ipc_path(value)}")]
Located = Annotated[str, Field(pattern=r"^[^\x00]+$"), AfterValidator(_located)]
Existing = Annotated[Located, AfterValidator(_existing)]
Listen = Annotated[str, AfterValidator(_listening)]
Duration = Annotated[float, quantity({"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}, 1e6, '"250ms", "60s" or "1h"')]
SIZES = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
Size = Annotated[int, quantity(SIZES, 2**62, '"512MiB" or "2GiB"')]
Entry = Annotated[int, Field(ge=0)] | Annotated[str, Field(pattern=r"^(cpu|(GPU|MIG)-[A-Za-z0-9/-]+)$")]
Group = Annotated[list[Entry], Field(min_length=1)]
Devices = Annotated[
    list[Entry | Group],
    Field(min_length=1),
    BeforeValidator(lambda value: [value] if isinstance(value, str) else value),
    such('a list of devices: [0, 1], ["GPU-uuid"], ["cpu", "cpu"], or with a group [[0, 1], 2]'),
]
AnyDevice = Annotated[Entry | Group, such('0, "GPU-uuid", "cpu", or a group such as [0, 1]')]
LayerDevice = Annotated[str, Field(pattern=r"^/(cpu|gpu):(0|[1-9][0-9]{0,3})$")]
Layers = Annotated[
    dict[Text, LayerDevice] | Literal["least-loaded"], such('such as { "encoder/*" = "/gpu:1" }, or "least-loaded"')
]
Rows = Annotated[int, Field(ge=1, le=65536)]
Threads = Annotated[int, Field(ge=1, le=1024)]
Replicas = Annotated[
    Annotated[int, Field(ge=1, le=1024)] | Literal["all"], such('"auto", "all" or a number from 1 to 1024')
]
Fraction = Annotated[float, Field(ge=0.01, le=1.0)]
Number = Annotated[int, Field(ge=0, lt=2**63)]
Count = Annotated[int, Field(ge=0, le=1024)]


def key(default: Any, description: str, **bounds: Any) -> Any:
    return Field(default, description=description, **bounds)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=True)

    @field_validator("*", mode="before")
    @classmethod
    def _word(cls, value: object, info: ValidationInfo) -> object:
        """The default of a key that may be None is a word for it, such as "auto"."""
        field = cls.model_fields[str(info.field_name)]
        return None if type(None) in get_args(field.annotation) and value == field.default else value


class TensorFlow(Section):
    allow_growth: bool = key(True, "Whether GPU memory is taken as it is needed, not all of it at the start.")
    per_process_gpu_memory_fraction: Fraction | None = key("unlimited", "The most GPU memory of a worker, such as 0.5.")
    allow_soft_placement: bool = key(True, "Whether operations without a GPU kernel may run on the CPU.")
    log_device_placement: bool = key(False, "Whether workers log on which device each operation runs.")
    intra_op_parallelism_threads: Threads | None = key("auto", "Threads within one operation.")
    inter_op_parallelism_threads: Threads | None = key("auto", "Operations that run at the same time.")
    device_count: dict[str, Count] = key({}, "How many devices of a kind are used at most, such as { CPU = 1 }.")
    op_libraries: list[Existing] = key([], 'Files of custom operations, such as ["ops.so"].')


# Only what is given counts, and is dumped. `strict` would take no table.
Options = Annotated[TensorFlow, Field(strict=False), PlainSerializer(lambda each: each.model_dump(exclude_unset=True))]


class Pool(Section):
    devices: Devices | None = key("auto", 'What has a worker each: [0, 1], ["cpu"], [[0, 1], 2]; "auto": every GPU.')
    workers_per_device: int = key(1, "How many workers share each device and its memory, in a slot each.", ge=1, le=64)
    lanes: int = key(2, "A worker's threads: one moves data while another computes.", ge=1, le=16)
    endpoint: Address | None = key("auto", 'Where clients connect, such as "ipc:///path/pool.sock".')
    group: Text | None = key("off", "A Unix group whose members may submit jobs, too.")
    drain_timeout: Duration = key("30s", "How long running jobs may take to finish when the pool stops.")
    state: Located | None = key("auto", "A folder for the inputs of quarantined jobs, and what was learned of models.")
    watch: Duration = key("2s", "How often the files of models are looked at for new versions and changes.")


class Device(Section):
    device: AnyDevice = key(..., "One of [pool] devices, written as there: its slots have what follows.")
    memory: Size | None = key("all", 'How much of its memory the pool may plan with, such as "20GiB".')
    tensorflow: Options = key({}, "Options of [tensorflow] for this device alone, such as { allow_growth = false }.")


class Model(Section):
    name: Name = key(..., "What clients call the model.")
    path: Existing = key(..., "A SavedModel, a frozen graph (.pb), a checkpoint (.meta) or a Keras file.")
    versions: Literal["newest", "all"] | list[Number] = key("newest", 'Of NAME/1, NAME/2: "newest", "all", or [1, 2].')
    labels: dict[Label, Number] = key({}, 'Names of versions, such as { stable = 2 }: clients give version="stable".')
    devices: Devices | None = key("all", 'Which of the pool\'s devices may serve it: [0], ["cpu"] or [[0, 1]].')
    replicas: Replicas | None = key("auto", 'Its copies; "auto": one, and more on GPUs without a model; "all"; or 2.')
    device_memory: Size | None = key("auto", 'What a copy needs, such as "6GiB"; "auto": as measured, or by its files.')
    batching: Literal["auto", "on", "off"] = key("auto", 'Joins jobs of proven rows; "on": you vouch for all.')
    max_batch: Rows = key(32, "The most rows that run as one batch.")
    batch_wait: Duration | None = key("off", 'How long a job may wait for company on an idle lane, such as "2ms".')
    allowed_batch_sizes: list[Rows] = key([], "Batches are padded to these sizes, such as [1, 8, 32].")
    weight: float = key(1.0, "Its share of a device's time, against those of others.", ge=0.001, le=1000.0)
    stateful: bool | None = key("auto", "true: it has one worker and runs one job at a time.")
    tags: list[Text] | None = key("auto", 'The graph\'s, such as ["serve"], if there are several.')
    inputs: dict[str, Text] = key({}, 'Of a graph that declares no signature, such as { x = "input:0" }.')
    outputs: dict[str, Text] = key({}, 'Of a graph that declares no signature, such as { y = "output:0" }.')
    xla: bool = key(False, "Whether XLA compiles the graph.")
    mixed_precision: bool = key(False, "Whether 16-bit floats are used where TensorFlow holds that to be safe.")
    layer_devices: Layers = key({}, 'Moves layers: { "encoder/*" = "/gpu:1" }; "least-loaded" spreads variables.')
    clear_devices: bool | None = key("auto", 'Device strings in the graph: "auto" clears those of missing devices.')
    tensorflow: Options = key({}, "Options of [tensorflow] that it demands of its whole process.")
    handler: ClassName | None = key("off", 'A class with code of yours around the model, such as "module:Class".')
    handler_path: Existing | None = key("off", "A folder where the handler's module is, if it is not installed.")
    handler_options: dict[str, Any] = key({}, 'What the handler\'s class is given, such as { labels = "names.txt" }.')

    @field_validator("allowed_batch_sizes")
    @classmethod
    def _rise_to_max_batch(cls, sizes: list[int], info: ValidationInfo) -> list[int]:
        most = info.data.get("max_batch")
        if sizes and most and (sizes != sorted(set(sizes)) or sizes[-1] != most):
            raise ValueError(f"{sizes} does not rise to max_batch, which is {most}; write such as {[1, most]}")
        return sizes


class Queue(Section):
    max_jobs: int = key(10000, "The most jobs that wait or run at a time.", ge=1, le=10**9)
    max_bytes: Size = key("2GiB", "The most bytes of jobs that the pool itself holds.")
    default_timeout: Duration = key("60s", "The time-out of a job whose caller gives none.")
    max_attempts: int = key(2, "How often a job is run, if each run ends its worker.", ge=1, le=100)


class Health(Section):
    hung_after: Duration | None = key("auto", 'How long a batch may run; "auto": 60 s, or its longest time-out.')
    memory_timeout: Duration = key("60s", "How long a worker may wait for the memory of those before it.")
    import_timeout: Duration = key("300s", "How long a worker may take to import TensorFlow.")
    load_timeout: Duration = key("600s", "How long a worker may take to load one model.")
    warmup_timeout: Duration = key("900s", "How long a worker may take to run one model for the first time.")


class Restart(Section):
    intensity: int = key(5, "The deaths within the period that a slot may have.", ge=0, le=1000)
    period: Duration = key("60s", "The time over which the deaths of a slot's workers are counted.")


class Door(Section):
    listen: Listen | None = key("off", 'Where the door listens for HTTP, such as "127.0.0.1:8000".')
    grpc: Listen | None = key("off", 'Where it listens for gRPC, such as "127.0.0.1:8001".')
    tokens: Located | None = key("off", "The file of `pool token new`; without it only this machine may connect.")
    certificate: Existing | None = key("off", "A PEM file with the door's certificate and its chain, for TLS.")
    certificate_key: Existing | None = key("off", "A PEM file with the certificate's private key.")
    hosts: list[Text] = key([], 'Names of this machine that callers may use, such as ["gpu1.example"].')
    origins: list[Text] = key([], 'Other origins whose requests are let in, such as ["https://dash.example"].')
    max_body: Size = key("256MiB", "The most bytes of a request's body, unpacked.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for name, address in (("listen", self.listen), ("grpc", self.grpc)):
            if address is not None and self.tokens is None and not LOOPBACK.fullmatch(address):
                raise ValueError(f"{name} = {address!r} lets other machines in; set tokens, or write 127.0.0.1")
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError("certificate and certificate_key belong together; write both")
        return self


class Config(BaseModel):
    """A whole file. `model_dump()` has plain values: seconds, bytes, and None for a word in place of them."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)

    pool: Pool = Pool()
    device: list[Device] = key([], "What differs between devices.")
    model: list[Model] = key([DEMO], "The models to serve: without any, the demo.", min_length=1, max_length=500)
    tensorflow: TensorFlow = TensorFlow()
    queue: Queue = Queue()
    health: Health = Health()
    restart: Restart = Restart()
    door: Door = Door()


SECTIONS: dict[str, type[Section]] = {each.__name__.lower(): each for each in Section.__subclasses__()}

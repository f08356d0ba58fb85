"""Every key of `config.toml`: its type, its bounds, its default.

The models are frozen and strict: an unknown key, a text where a number belongs, or a number out of its bounds
is refused, never bent. Durations are seconds and sizes are bytes once they are read. A key that is not here
is not read by anything.
"""

import ipaddress
import os
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator

from pool.config.client import ClientSection
from pool.config.cluster import ClusterSection
from pool.config.device_list import CpuAffinity, ModelDevices, PoolDevices
from pool.config.gateway import GatewaySection
from pool.config.handler import HandlerKeys
from pool.config.optimizations import OptimizationKeys
from pool.config.quantities import (
    Bytes,
    BytesByDefaultAuto,
    BytesOrAuto,
    BytesOrOff,
    BytesOrUnlimited,
    CountOrAuto,
    CountOrOff,
    CountOrUnlimited,
    MicrosecondsOrOff,
    PositiveSeconds,
    Replicas,
    Seconds,
    SecondsOrAuto,
    SecondsOrOff,
    Weight,
)
from pool.config.section import AtKey, Section, SomePath, Texts, or_word
from pool.config.security import MENDED, SecuritySection
from pool.config.tensorflow import (
    DeviceSection,
    LayerDevices,
    TensorFlowOverrides,
    TensorFlowSection,
    is_least_loaded,
    rules_of,
)
from pool.config.version_keys import VersionKeys
from pool.wire.gateway import GatewaySettings
from pool.wire.worker_messages import LayerRule

__all__ = ["ModelSection", "QuarantineSection", "Settings", "repeated_names"]

# sun_path of a Unix socket has 108 bytes, the last one a NUL.
_PATH_BYTES = 107
_TCP = re.compile(r"tcp://(\*|\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\]]+):(\*|\d{1,5})", re.ASCII)
_LARGEST_BATCH = 65536
_OrAuto = or_word("auto")
FEWEST_BEATS = 3  # that must be missing before a worker counts as silent: one may be late
_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)


def _tcp_endpoint(value: str) -> str:
    match = _TCP.fullmatch(value)
    if match is None or (match[2] != "*" and not 1 <= int(match[2]) <= 65535):
        right = '"tcp://ADDRESS:PORT", such as "tcp://127.0.0.1:5555"'
        raise ValueError(f"{value!r} is not a tcp endpoint; write {right}")
    try:
        ipaddress.ip_address(match[1].strip("[]"))
    except ValueError:  # what a name stands for may change after the check
        right = f'an address in numbers, such as "tcp://127.0.0.1:{match[2]}", or "tcp://0.0.0.0:{match[2]}" for all'
        raise ValueError(f"{value!r} names no address of this machine in numbers; write {right}") from None
    return value


def _is_loopback(endpoint: str) -> bool:
    """REQUIRES one in numbers."""
    return ipaddress.ip_address(endpoint.removeprefix("tcp://").rpartition(":")[0].strip("[]")).is_loopback


class PoolSection(Section):
    """What the pool listens on, what it has a worker for, and where it keeps what outlives it.

    `group`: whose members, too, may connect to the endpoint; "off", None: none.
    `workers_per_device`: so many slots a device, each with all that is placed there.
    `min_ready`: so many slots of a model, if it has them, are READY while another one is replaced.
    `standby`: each slot has a second process that has imported TensorFlow and follows the worker that dies.
    `cpu_affinity` "auto": each CPU worker runs on cores of its own; else on those of its list.
    `watch`: how often the folders of models are looked at for new versions; "off", None once loaded: not at all.
    `endpoint`, `state` None: "auto", where a user's own lie.
    """

    endpoint: Annotated[str | None, _OrAuto] = None
    group: Annotated[str | None, or_word("off")] = None
    listen: Annotated[tuple[Annotated[str, AfterValidator(_tcp_endpoint)], ...], Field(strict=False)] = ()
    devices: PoolDevices = "auto"
    workers_per_device: Annotated[int, Field(ge=1, le=64)] = 1
    lanes: Annotated[int, Field(ge=1, le=16)] = 2
    ready: Literal["all", "any", "strict"] = "all"
    drain_timeout: Seconds = 30.0
    min_ready: Annotated[int, Field(ge=1)] = 1
    standby: bool = False
    cpu_affinity: CpuAffinity = "off"
    watch: SecondsOrOff = 5.0
    state: Annotated[SomePath | None, _OrAuto] = None

    @field_validator("endpoint")
    @classmethod
    def _is_a_local_socket(cls, value: str | None) -> str | None:
        if value is None:
            return value
        path = value.removeprefix("ipc://")
        if path == value or not path.startswith("/") or "\0" in path:
            right = '"ipc://" and an absolute path, such as "ipc:///run/pool/pool.sock" ("tcp://…" goes into `listen`)'
            raise ValueError(f"{value!r} is not a local socket; write {right}")
        if (size := len(os.fsencode(path))) > _PATH_BYTES:
            right = f"one of at most {_PATH_BYTES} bytes, the most that a Unix socket can have"
            raise ValueError(f"the path has {size} bytes; write {right}")
        return value


class QueueSection(Section):
    """The bounds of what may wait, and for how long; "auto": a client leaves a part of what is free to others."""

    max_jobs: Annotated[int, Field(ge=1)] = 10_000
    max_bytes: Bytes = 2 * 2**30
    client_max_jobs: CountOrAuto = "auto"
    client_max_bytes: BytesOrAuto = "auto"
    default_timeout: PositiveSeconds = 60.0
    max_attempts: Annotated[int, Field(ge=1)] = 2


class RestartSection(Section):
    """A slot that needs more than `intensity` restarts in `period` is given up; 0 allows none.

    `replacement`: whether the next worker gets ready beside the one that is to go; "auto": where its device has room.
    """

    intensity: Annotated[int, Field(ge=0)] = 5
    period: PositiveSeconds = 60.0
    backoff_max: PositiveSeconds = 30.0
    replacement: Literal["auto", "always", "off"] = "auto"


class RecycleSection(Section):
    """A worker that has served for `age`, done so many `jobs` or holds so much `host_memory` is replaced.

    "off", None once it is loaded: not for that. `host_memory` is resident memory of the machine, not the GPU's.
    """

    age: SecondsOrOff = None
    jobs: CountOrOff = None
    host_memory: BytesOrOff = None


class HealthSection(Section):
    """How long each phase of a worker may take before it is held to be hung.

    `silent_after`: an idle worker that gives no sign of life for so long; `hung_after`: one that runs a batch.
    `device_free_timeout`: how long a new worker may have to wait for its GPU's memory; "off", None
    once loaded: it does not wait, and NVML is never asked.
    """

    heartbeat: PositiveSeconds = 1.0
    hung_after: SecondsOrAuto = "auto"
    silent_after: SecondsOrAuto = "auto"
    import_timeout: PositiveSeconds = 120.0
    load_timeout: PositiveSeconds = 600.0
    warmup_timeout: PositiveSeconds = 900.0
    device_free_timeout: SecondsOrOff = 30.0

    @field_validator("silent_after")
    @classmethod
    def _is_longer_than_some_heartbeats(cls, value: float | str, info: ValidationInfo) -> float | str:
        heartbeat_s = info.data.get("heartbeat", 0.0)
        if isinstance(value, float) and value < FEWEST_BEATS * heartbeat_s:
            least = f"{FEWEST_BEATS * heartbeat_s:g} s or more"
            raise ValueError(f"{value:g} s is less than three heartbeats of {heartbeat_s:g} s; write {least}")
        return value


class QuarantineSection(Section):
    """What is kept of the inputs of jobs that killed their workers; `keep` "off", None once loaded: nothing."""

    keep: CountOrOff = 20
    max_bytes: Bytes = 256 * 2**20


class CrashReportsSection(Section):
    """What is kept of workers that died: their crash reports, for `pool explain slot:N`.

    `keep` "off", None once loaded: in memory only.
    """

    keep: CountOrOff = 100
    max_bytes: Bytes = 16 * 2**20


class SharedMemorySection(Section):
    """The memory that is lent to local clients for large tensors.

    `max_bytes` "off", None once loaded: they are sent.
    """

    max_bytes: BytesOrOff = 4 * 2**30
    client_max_bytes: Bytes = 2**30


class AdvancedSection(Section):
    """What few pools need.

    `spin_us`: microseconds for which the pool's loop and the lanes look again and again before they sleep; "off", None
    once loaded: they sleep at once.
    """

    spin_us: MicrosecondsOrOff = None

    @property
    def spin_s(self) -> float:
        return (self.spin_us or 0) * 1e-6


class ModelSection(OptimizationKeys, HandlerKeys, VersionKeys):
    """One model, where it is served and how it is scheduled. Once loaded, `path` is absolute or starts with `stub:`.

    `batching` "auto": rows that are proven independent are joined, cut and padded; "always": the user vouches for all.
    `max_batch` is the last of `allowed_batch_sizes`, if there are any. `max_jobs`, `max_bytes` None: "unlimited", but
    for the pool's own bounds. `tags`: of the graph of a SavedModel that has several. `inputs`, `outputs`: tensors of a
    graph that declares none. None of these three: "auto", its loader looks for itself. `replicas` "auto": one copy, and
    further ones on devices that would have no model. `device_memory` None: "auto", what a former run took, or its
    weights. `stateful` None: "auto", as its worker finds in the graph.
    `batch_wait` None: "off", no job waits for others.
    """

    name: str
    path: SomePath
    tags: Annotated[Texts | None, _OrAuto] = None
    inputs: Annotated[Texts | None, _OrAuto] = None
    outputs: Annotated[Texts | None, _OrAuto] = None
    devices: ModelDevices = "auto"
    replicas: Replicas = "auto"
    device_memory: BytesByDefaultAuto = None
    warmup: bool = True
    batching: Literal["auto", "always", "off"] = "auto"
    max_batch: Annotated[int, Field(ge=1, le=_LARGEST_BATCH)] = 32
    batch_wait: SecondsOrOff = None
    allowed_batch_sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=_LARGEST_BATCH)], ...], Field(strict=False)] = ()
    weight: Weight = 1.0
    max_jobs: CountOrUnlimited = None
    max_bytes: BytesOrUnlimited = None
    tensorflow: TensorFlowOverrides = TensorFlowOverrides()
    layer_devices: LayerDevices = ()
    copy_per_device: bool = False
    stateful: Annotated[bool | None, _OrAuto] = None

    @property
    def rules(self) -> tuple[LayerRule, ...]:
        """Of `layer_devices`, as they travel to a worker."""
        return rules_of(self.layer_devices)

    @property
    def least_loaded(self) -> bool:
        """Whether `layer_devices` is that instead of rules."""
        return is_least_loaded(self.layer_devices)

    @model_validator(mode="before")
    @classmethod
    def _max_batch_follows_the_sizes(cls, data: Any) -> Any:
        if not isinstance(data, dict) or "max_batch" in data:
            return data
        sizes = data.get("allowed_batch_sizes")
        last = sizes[-1] if isinstance(sizes, list | tuple) and sizes else None
        # Any other is told of where it stands.
        return {**data, "max_batch": last} if type(last) is int and 1 <= last <= _LARGEST_BATCH else data

    @field_validator("allowed_batch_sizes")
    @classmethod
    def _rise_to_max_batch(cls, value: tuple[int, ...], info: ValidationInfo) -> tuple[int, ...]:
        if any(size >= larger for size, larger in pairwise(value)):
            right = "each size once, the smallest first, such as [1, 8, 32]"
            raise ValueError(f"{list(value)} does not rise; write {right}")
        most = info.data.get("max_batch", value[-1] if value else None)
        if value and value[-1] != most:
            right = "the same number, or leave max_batch out"
            raise ValueError(f"ends with {value[-1]} and max_batch is {most}; write {right}")
        if value and info.data.get("batching") == "off":
            raise ValueError(
                'set the sizes of batches, but batching = "off" switches batches off; leave one of them out'
            )
        return value

    @field_validator("name")
    @classmethod
    def _is_a_plain_name(cls, value: str) -> str:
        if _NAME.fullmatch(value) is None:
            raise ValueError(f"{value!r} is not a name; write letters, digits, '_', '.' and '-', at least one")
        return value

    @field_validator("copy_per_device")
    @classmethod
    def _not_spread_too(cls, value: bool, info: ValidationInfo) -> bool:
        if value and is_least_loaded(info.data.get("layer_devices", ())):
            raise ValueError(
                'layer_devices = "least-loaded" spreads one copy over the devices, but copy_per_device makes a copy on'
                " each; leave one of them out"
            )
        return value

    @field_validator("replicas")
    @classmethod
    def _only_for_auto(cls, value: int | str, info: ValidationInfo) -> int | str:
        if value != "auto" and info.data.get("devices", "auto") != "auto":
            raise ValueError(
                '`devices` already says where the model is served; leave `replicas` out, or write devices = "auto"'
            )
        return value


def repeated_names(names: Sequence[object]) -> dict[int, int]:
    """For each name that was there before: its position, and that of the first."""
    return {index: names.index(name) for index, name in enumerate(names) if names.index(name) < index}


class Settings(Section):
    """A whole `config.toml`. `Settings()` is what an empty one means.

    `gateway` None: the pool starts none. `security` None: nobody is asked for a key, and only this machine can come.
    """

    pool: PoolSection = PoolSection()
    tensorflow: TensorFlowSection = TensorFlowSection()
    queue: QueueSection = QueueSection()
    restart: RestartSection = RestartSection()
    health: HealthSection = HealthSection()
    recycle: RecycleSection = RecycleSection()
    quarantine: QuarantineSection = QuarantineSection()
    crash_reports: CrashReportsSection = CrashReportsSection()
    shared_memory: SharedMemorySection = SharedMemorySection()
    gateway: GatewaySection | None = None
    security: SecuritySection | None = None
    cluster: ClusterSection = ClusterSection()
    advanced: AdvancedSection = AdvancedSection()
    client: Annotated[tuple[ClientSection, ...], Field(strict=False)] = ()
    device: Annotated[tuple[DeviceSection, ...], Field(strict=False)] = ()
    model: Annotated[tuple[ModelSection, ...], Field(strict=False)] = ()

    @field_validator("device")
    @classmethod
    def _devices_are_unique(cls, value: tuple[DeviceSection, ...]) -> tuple[DeviceSection, ...]:
        for index in repeated_names([device.use for device in value]):
            raise ValueError(f"two sections use {value[index].use!r}; write the keys of both into one")
        return value

    @field_validator("client")
    @classmethod
    def _nobody_is_two_clients(cls, value: tuple[ClientSection, ...]) -> tuple[ClientSection, ...]:
        for what, of in (("key", lambda each: (each.name, *each.keys)), ("user", lambda each: each.users)):
            whose: dict[object, str] = {}
            for client in value:
                for each in dict.fromkeys(of(client)):
                    if (other := whose.setdefault(each, client.name)) != client.name:
                        right = "write it into one of them"
                        raise ValueError(f"{what} {each!r} is of {other} and of {client.name}; {right}")
        return value

    @model_validator(mode="after")
    def _strangers_stay_out(self) -> "Settings":
        for index, endpoint in enumerate(self.pool.listen if self.security is None else ()):
            if not _is_loopback(endpoint):
                raise AtKey(
                    ("pool", "listen", index),
                    f"{endpoint!r} can be reached from other machines, so who connects needs a key; {MENDED}",
                )
        return self

    def gateway_message(self, *endpoints: str) -> GatewaySettings | None:
        """What the gateway's processes are told; `endpoints`: of their pools, none as any client finds them."""
        if self.gateway is None:
            return None
        return self.gateway.message(endpoints, self.pool.drain_timeout)

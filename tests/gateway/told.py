"""What a pool tells of its models, made up."""

from collections.abc import Mapping

from pool.wire.records import LastMinute, Model, ModelLoad, SignatureInfo, Slot, Tensor

Spec = str | tuple[str, tuple[int, ...] | None]


def signature(
    inputs: Mapping[str, Spec], outputs: Mapping[str, Spec] | None = None, method: str = "tensorflow/serving/predict"
) -> SignatureInfo:
    """Of dtypes, or of dtypes with shapes; any shape otherwise."""

    def tensors(specs: Mapping[str, Spec]) -> dict[str, Tensor]:
        return {
            name: Tensor(spec, None, f"{name}:0") if isinstance(spec, str) else Tensor(*spec, f"{name}:0")
            for name, spec in specs.items()
        }

    return SignatureInfo(tensors(inputs), tensors(outputs or {"y": "float32"}), False, "", None, method)


def model(
    signatures: Mapping[str, SignatureInfo],
    name: str = "m",
    *,
    version: int | None = None,
    versions: tuple[int, ...] = (),
    labels: tuple[str, ...] = (),
    slots: tuple[int, ...] = (0,),
    ready: tuple[int, ...] = (0,),
    default: bool = True,
    leaving: bool = False,
) -> Model:
    """`version`: of one beside others; `versions`: that the slots of one without serve."""
    entry = name if version is None else f"{name}@{version}"
    load = ModelLoad(
        *(entry, name, version, labels, default, 0, 0, 0, None, 0, {}, LastMinute(60.0, 0, 0, None, None)),
        *(0.0, 32, (), {}, {}, (), None, leaving),
    )
    return Model(
        *(entry, name, version, labels, default, slots, ready, versions, "/m", False, "", (), signatures, {}, (), ()),
        load,
    )


def slot(number: int, state: str, reason: str = "") -> Slot:
    return Slot(
        *(number, f"cpu:{number}", "", (), (), None, 1, state, 1.0, reason, False, ("m",), {}, "", 1, 0, 0, None),
        *(None, None, None, ()),
    )

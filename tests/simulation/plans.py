"""What slots are planned to have, and what workers say of their models, in the tests."""

from collections.abc import Mapping, Sequence

from pool.core.policy import SlotPlan
from pool.wire.signatures import DEFAULT_SIGNATURE, ModelInfo, Signature, TensorSpec

__all__ = ["model_info", "slot_plan"]


def model_info(name: str, stateful: bool = False, batchable: bool = True) -> ModelInfo:
    """One signature, x → y, and with axis 0 unknown on both if its jobs may be joined."""
    fetch = TensorSpec("float32", (-1,) if batchable else ())
    signature = Signature({"x": TensorSpec("float32", (-1,))}, {"y": fetch})
    return ModelInfo(name, f"stub:{name}", {DEFAULT_SIGNATURE: signature}, stateful)


def slot_plan(number: int, models: Sequence[str], versions: Mapping[str, int] | None = None) -> SlotPlan:
    """Slots 0 and 1 sit on device gpu:0, 2 and 3 on gpu:1, and so on."""
    device = f"gpu:{number // 2}"
    held = {name: version for name, version in (versions or {}).items() if name in models}
    return SlotPlan(tuple(models), device, frozenset({device, f"slot:{number}"}), held)

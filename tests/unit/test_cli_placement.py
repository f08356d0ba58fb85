"""`pool placement`: what of a model ran where, and which rules are kept."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from pool.cli import placement as placement_module
from pool.wire.codec import packed, unpack
from pool.wire.records import ModelCopies, Placement
from support.commands import in_process


def node(name: str, device: str, rule: int | None = None, function: str = "") -> dict[str, Any]:
    return {"node": name, "function": function, "op": "MatMul", "device": device, "rule": rule}


def rule(layers: str, kept: bool | None, *elsewhere: str) -> dict[str, Any]:
    wrong = [{"node": name, "device": "/cpu:0"} for name in elsewhere]
    absent = list("uvwxyz") if layers == "e" else []
    found = {"layers": layers, "device": "/gpu:0", "matched": 3, "ran": 2}
    return {**found, "elsewhere": wrong, "absent": absent, "kept": kept}


REPORT = {
    "model": "m",
    "slot": 1,
    "device": "gpu:0",
    "devices": ["/cpu:0", "/gpu:0"],
    "signatures": {
        "serving_default": {"nodes": [node("a\x1b[2J", "/cpu:0"), node("b", "/gpu:0", 1, "f")], "why": None},
        "train": {"nodes": [], "why": "it may change the model's state"},
        "empty": {"nodes": [], "why": None},
    },
    "rules": [rule("a.*", True), rule("b", False, "b"), rule("c", False), rule("d", None), rule("e", True)],
}


class FakeClient:
    report: Any = REPORT
    asked: Any = None

    def __init__(self, _endpoint: str | None, *, connect_timeout: float, reconnect_timeout: float) -> None:
        assert connect_timeout < 5
        assert reconnect_timeout == 0, "who looks wants to know now"

    endpoint = "ipc:///a"

    @property
    def pools(self) -> "tuple[FakeClient]":
        return (self,)

    def __enter__(self) -> "FakeClient":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def status(self) -> Any:
        return SimpleNamespace(copies=[ModelCopies(name, ("gpu:0", "gpu:2"), "why") for name in "mn"])

    def placement(self, model: str, *, timeout: float | None, device: str | None) -> Any:
        FakeClient.asked = (model, timeout, device)
        return unpack(Placement, packed(self.report))


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(placement_module, "Client", FakeClient)
    return lambda *argv: in_process("placement", *argv).out


def test_each_node_has_its_device_and_each_rule_its_verdict(shown: Any) -> None:
    assert shown("m").splitlines() == [
        "m is on 2 devices: gpu:0, gpu:2; why",
        "m in slot 1 (gpu:0), which has /cpu:0, /gpu:0",
        "",
        "empty: nothing runs",
        "",
        "serving_default: 1 node on /cpu:0, 1 node on /gpu:0",
        "  DEVICE  OP      NODE      FUNCTION  RULE",
        "  /cpu:0  MatMul  a\\x1b[2J  –            –",
        "  /gpu:0  MatMul  b         f            2",
        "",
        "train: it may change the model's state",
        "",
        "RULE  LAYERS  DEVICE  MATCHED  RAN  KEPT",
        "   1  a.*     /gpu:0        3    2  yes",
        "   2  b       /gpu:0        3    2  no: b on /cpu:0",
        "   3  c       /gpu:0        3    2  no: none of its nodes ran",
        "   4  d       /gpu:0        3    2  it has no nodes to run",
        "   5  e       /gpu:0        3    2  yes, except what TensorFlow left out: u, v, w, x, y and 1 more",
    ]


def test_without_rules_there_is_no_column_for_them(shown: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = {"signatures": {"s": {"nodes": [node("a", "/cpu:0")], "why": None}}, "rules": []}
    monkeypatch.setattr(FakeClient, "report", {**REPORT, **plain})
    assert "RULE" not in shown("m")


def test_the_worker_may_be_chosen_and_json_is_the_report(shown: Any) -> None:
    assert json.loads(shown("m", "--json", "--device", "slot:1", "--timeout", "2.5")) == REPORT
    assert FakeClient.asked == ("m", 2.5, "slot:1")

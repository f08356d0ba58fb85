"""What a worker reports of where a model ran: read as a `Placement`, or refused in words."""

import json
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from pool import errors
from pool.client.placement import report_of
from pool.wire.records import PlacedNode, PlacedRule, RanElsewhere
from pool.wire.signatures import REPORT

NODE = {"node": "n", "function": "", "op": "MatMul", "device": "/cpu:0", "rule": None}
RULE = {"layers": "n", "device": "/gpu:0", "matched": 1, "ran": 1, "absent": [], "kept": False}
REPORTED = {
    "devices": ["/cpu:0"],
    "signatures": {"s": {"nodes": [NODE], "why": None}},
    "rules": [{**RULE, "elsewhere": [{"node": "n", "device": "/cpu:0"}]}],
}


def answered(text: str) -> Any:
    """A future with this report, from slot 3."""
    result = {REPORT: np.array(text.encode(), object)}
    return cast(Any, SimpleNamespace(result=lambda: result, timeline=SimpleNamespace(slot=3, device="cpu:1")))


def test_a_report_is_an_object_that_says_whose_it_is() -> None:
    found = report_of("m", answered(json.dumps(REPORTED)))
    assert (found.model, found.slot, found.device, found.devices) == ("m", 3, "cpu:1", ("/cpu:0",))
    assert found.signatures["s"].nodes == (PlacedNode("n", "", "MatMul", "/cpu:0", None),)
    assert found.rules == (PlacedRule("n", "/gpu:0", 1, 1, (RanElsewhere("n", "/cpu:0"),), (), False),)
    assert found.to_dict() == {"model": "m", "slot": 3, "device": "cpu:1", **REPORTED}


def test_a_large_report_is_read_whole() -> None:
    many = {**REPORTED, "signatures": {"s": {"nodes": [NODE] * 100_000, "why": None}}}
    assert len(report_of("m", answered(json.dumps(many))).signatures["s"].nodes) == 100_000


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "Expecting"),
        ("[1]", "mapping"),
        ("{}", "devices is missing"),
        (json.dumps({**REPORTED, "rules": [RULE]}), "rules: elsewhere is missing"),
        (json.dumps({**REPORTED, "devices": [1]}), "devices: expected str, got int"),
    ],
)
def test_what_is_no_report_is_refused(text: str, why: str) -> None:
    with pytest.raises(errors.Incompatible, match=why):
        report_of("m", answered(text))

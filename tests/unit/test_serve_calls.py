"""What the pool keeps of its clients' calls: bounded for each, and nothing of one that it has refused."""

from dataclasses import replace
from typing import Any

import pytest

from pool.serve.calls import Call, Calls
from pool.serve.standing import ANYBODY
from pool.wire.calls import CALLS_BYTES, MOST_CALLS, ROWS, TABLE_BYTES, Table, TensorHeader, call_bytes
from pool.wire.codec import BadFrame, pack
from pool.wire.session_runs import PRIVATE_RUN, REMOTE_RUN, RUN
from support.asked import OWNER, Asked

TABLE = pack(Table((TensorHeader("x", "float32", (ROWS,), False),)))
ASKED = Asked(1, "m", "s", ("y",), 2, device="gpu:0", version="stable")


def register(calls: Calls, number: int, table: bytes = TABLE, **fields: Any) -> Call:
    call = calls.of(replace(ASKED, **fields).submit(table, number), OWNER)
    assert call is not None
    return call


def known(calls: Calls, number: int) -> Call | None:
    return calls.of(ASKED.submit(TABLE, number, registers=False), OWNER)


def test_a_call_is_known_by_its_number() -> None:
    calls = Calls()
    call = register(calls, 7)
    assert known(calls, 7) is call
    assert known(calls, 8) is None
    assert (call.names, call.table, call.form) == (ASKED.names, TABLE, TABLE)
    assert call.asked == ("m", "stable", "s", ("y",))
    assert call.layout is not None


@pytest.mark.parametrize("again", [7, 6, 0])
def test_no_number_is_used_again(again: int) -> None:
    calls = Calls()
    call = register(calls, 7)
    with pytest.raises(BadFrame, match=f"call {again} after call 7"):
        register(calls, again)
    calls.forget(7)
    with pytest.raises(BadFrame, match=f"call {again} after call 7"):
        register(calls, again)
    assert known(calls, 7) is None
    assert register(calls, 8) is not call


def test_a_client_has_so_many_calls_and_forgetting_one_makes_room() -> None:
    calls = Calls()
    for number in range(1, MOST_CALLS + 1):
        register(calls, number)
    with pytest.raises(BadFrame, match=f"{MOST_CALLS + 1} calls; the pool keeps at most {MOST_CALLS} of one client"):
        register(calls, MOST_CALLS + 1)
    calls.forget(5)
    calls.forget(5)  # once
    register(calls, MOST_CALLS + 1)
    with pytest.raises(BadFrame, match="calls; the pool keeps at most"):
        register(calls, MOST_CALLS + 2)


def test_its_calls_are_bounded_in_bytes() -> None:
    calls = Calls()
    outputs = tuple(f"{number:0900}" for number in range(60))
    each = call_bytes(replace(ASKED, outputs=outputs).names, len(TABLE), 1)
    fit = CALLS_BYTES // each
    assert 1 < fit < MOST_CALLS, "it is not their number"
    for number in range(1, fit + 1):
        assert register(calls, number, outputs=outputs).size_bytes == each
    with pytest.raises(BadFrame, match=f"at most {CALLS_BYTES} of one client"):
        register(calls, fit + 1, outputs=outputs)
    calls.forget(1)
    register(calls, fit + 1, outputs=outputs)


@pytest.mark.parametrize(
    ("fields", "table", "complaint"),
    [
        ({"model": "m" * 1001}, TABLE, "a name of 1001 characters"),
        ({"outputs": ("y", "y")}, TABLE, "named twice"),
        ({"outputs": ("y" * 999,) * 70}, TABLE, "a header of"),
        ({}, b"", "it has no table"),
        ({}, bytes(TABLE_BYTES + 1), "a table of"),
        ({}, b"\xc1", "its table is not msgpack"),
    ],
)
def test_nothing_is_kept_of_what_is_refused(fields: dict[str, Any], table: bytes, complaint: str) -> None:
    calls = Calls()
    register(calls, 3)
    with pytest.raises(BadFrame, match=complaint):
        register(calls, 9, table=table, **fields)
    assert known(calls, 9) is None
    register(calls, 4)
    assert calls.size_bytes == 2 * call_bytes(ASKED.names, len(TABLE), 1)


def test_names_that_are_none_are_refused() -> None:
    submit = ASKED.submit(TABLE, 1)
    for names in (b"", b"\xc1", pack(ASKED.names)[:-1], pack(Table(()))):
        submit.names = names
        with pytest.raises(BadFrame):
            Calls().of(submit, OWNER)


def test_what_a_session_may_do_is_decided_once() -> None:
    calls = Calls()
    for number, (signature, standing) in enumerate(
        [(RUN, OWNER), (RUN, ANYBODY), (PRIVATE_RUN, OWNER), (PRIVATE_RUN, ANYBODY)]
    ):
        submit = replace(ASKED, signature=signature).submit(TABLE, number + 1)
        assert calls.of(submit, standing) is not None
    found = [calls._known[number] for number in range(1, 5)]
    assert [call.signature for call in found] == [RUN, REMOTE_RUN, PRIVATE_RUN, PRIVATE_RUN]
    assert [call.refusal is None for call in found] == [True, True, True, False]

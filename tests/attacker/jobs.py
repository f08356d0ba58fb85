"""Jobs, good ones and wrong ones: a job that any client may send, with what is wrong in it known."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from attacker.extremes import CONTROL, LAST, LONG, bits, name, number, one_of, outside
from attacker.ledger import Owed, answered, gives, refused, refused_later
from pool.client.payload import encode_call
from pool.wire import session_runs
from pool.wire.calls import ROWS, TABLE_BYTES, Table, TensorHeader
from pool.wire.codec import pack
from pool.wire.faults import Fault
from pool.wire.lent import AnswerSpace, Lent
from pool.wire.signatures import PLACEMENT
from pool.wire.tensors import DTYPES
from support.asked import Asked

__all__ = ["CANNOT", "TIMEOUT_S", "Job", "any_job", "doubled", "wrong_job"]

TIMEOUT_S = 60.0
CANNOT = "^the job cannot be read: .*"


@dataclass(frozen=True, slots=True)
class Job:
    submit: Asked
    payload: list[bytes]
    owed: Owed


Maker: TypeAlias = Callable[[random.Random, int], Job]


def job_of(job: int, model: str, signature: str | None, inputs: Any, owed: Owed, **fields: Any) -> Job:
    rows, payload = encode_call(model, inputs)
    submit = Asked(job, model, signature, None, rows, TIMEOUT_S, 0, None, 0, False)
    return Job(replace(submit, **fields), payload, owed)  # type: ignore[arg-type]  # nothing of it is lent


def doubled(rng: random.Random, job: int, rows: int | None = None, model: str = "rows") -> Job:
    given = np.array([rng.randrange(1 << 20) for _ in range(rows or rng.choice((1, 1, 2, 7, 64)))], np.float32)
    return job_of(job, model, "double", given, Owed(gives({"y": given * 2})))


def chunk_of(rng: random.Random, job: int) -> Job:
    """Or one that says that it was in another."""
    weight = rng.choice((1, 2, 30))
    whole = doubled(rng, job, weight * rng.choice((1, 3)))
    return replace(whole, submit=replace(whole.submit, weight=weight, origin=rng.choice((0, 1, job, job - 1100))))


def echoed(rng: random.Random, job: int) -> Job:
    """Of any dtype and shape, and any bits in it."""
    dtype = one_of(rng, sorted(DTYPES))
    shape = one_of(rng, ((), (1,), (3,), (0,), (2, 0, 3), (5, 1, 2), (1,) * 60))
    if dtype == "string":
        texts = [rng.randbytes(rng.choice((0, 1, 300))) for _ in range(int(np.prod(shape)))]
        given = np.empty(len(texts), object)
        given[:] = texts
        given = given.reshape(shape)
    elif dtype == "bool":
        given = np.array(rng.randrange(2), bool) * np.ones(shape, bool)
    else:
        kind = DTYPES[dtype]
        given = np.frombuffer(bits(rng, int(np.prod(shape)) * kind.itemsize), kind).reshape(shape)
    return job_of(job, "echo", dtype, given, Owed(gives({"x": given})))


def texts(_: random.Random, job: int) -> Job:
    given = np.array([text.encode() for text in CONTROL], object)
    return job_of(job, "rows", "text", given, Owed(gives({"length": np.array([len(text) for text in given])})))


def guilty(rng: random.Random, job: int) -> Job:
    given = np.full(rng.choice((1, 3)), -1, np.float32)
    signature = rng.choice(("fail", "oom"))
    return job_of(job, "rows", signature, given, Owed(refused_later("", FAULTS[signature])))


FAULTS = {"fail": Fault.MODEL_FAILED, "oom": Fault.OUT_OF_MEMORY}


def counted(rng: random.Random, job: int) -> Job:
    return job_of(job, "theirs", "add", np.int64(rng.choice((1, -1, -(1 << 63), LAST))), Owed(answered))


def session(rng: random.Random, job: int) -> Job:
    """Calls of a remote session, with names that are none."""
    kind = one_of(rng, sorted(session_runs.SESSION_SIGNATURES))
    model = rng.choice(("rows", "echo", "theirs"))
    feeds = {rng.choice(("double/x:0", session_runs.SESSION, session_runs.TRACE_LEVEL, name(rng))): number(rng)}
    fetches = (rng.choice(("double/y:0", "double", name(rng))),)
    return job_of(job, model, kind, feeds, Owed(answered), outputs=fetches, rows=None)


def odd(rng: random.Random, job: int) -> Job:
    """Nothing is wrong with it, and no client sends it so."""
    good = doubled(rng, job)
    changed: dict[str, Any] = one_of(
        rng,
        (
            {"timeout_s": one_of(rng, (0.0, 5e-324, 1e-9, 1e8, -0.0, None))},
            {"priority": one_of(rng, (-100, 100))},
            {"attempts": 1},
            {"in_doubt": True},
            {"signature": PLACEMENT},
            {"outputs": one_of(rng, ((), ("y",), ("batch", "y")))},
            {"device": one_of(rng, ("slot:0", "cpu:1", "0"))},
            {"model": "slow"},
        ),
    )
    return replace(good, submit=replace(good.submit, **changed), owed=Owed(answered))


def worn(rng: random.Random, job: int) -> Job:
    """It says that it has ended as many pools as a job may."""
    good = doubled(rng, job)
    owed = Owed(refused_later("the pool ended unexpectedly .* while it held the job", Fault.WORKER_LOST))
    return replace(good, submit=replace(good.submit, attempts=one_of(rng, (2, LAST))), owed=owed)


GOOD: tuple[Maker, ...] = (
    doubled,
    doubled,
    doubled,
    chunk_of,
    echoed,
    echoed,
    texts,
    guilty,
    counted,
    session,
    odd,
    worn,
)


def any_job(rng: random.Random, job: int) -> Job:
    return one_of(rng, GOOD)(rng, job)


def wrong_job(rng: random.Random, job: int) -> Job:
    """One thing is wrong with it; what it is told must say so."""
    good = doubled(rng, job, rng.choice((1, 2, 7)))
    if rng.random() < 0.35:
        return _wrong_table(rng, good)
    fields, complaint = one_of(rng, WRONG)(rng)
    fault = Fault.MODEL_NOT_FOUND if "model" in fields or "version" in fields else Fault.INVALID_INPUT
    judge = refused if complaint.startswith("^") else refused_later
    owed = Owed(judge(complaint, fault, Fault.INVALID_INPUT))
    return replace(good, submit=replace(good.submit, **fields), owed=owed)


def _too_late(rng: random.Random) -> tuple[dict[str, Any], str]:
    return {"timeout_s": one_of(rng, (1.7e308, 1e300, 100_000_001.0))}, "^timeout is .* give a positive number"


def _weight(rng: random.Random) -> tuple[dict[str, Any], str]:
    weight = one_of(rng, (65, 1025, (1 << 16) - 1))
    return {"weight": weight}, CANNOT + "(.* jobs in one message|no rows|it has .* rows)"


def _long_name(rng: random.Random) -> tuple[dict[str, Any], str]:
    long = rng.choice("x\0𝄞") * rng.choice((LONG, 5000, 15_000))
    return {rng.choice(("model", "signature", "device", "version")): long}, CANNOT + "a name of"


def _outputs(rng: random.Random) -> tuple[dict[str, Any], str]:
    outputs, complaint = one_of(
        rng,
        (
            (tuple(f"{index:x}" for index in range(2049)), "2049 outputs"),
            (("",) * 2048, "named twice"),
            (("y", "y"), "named twice"),
            (("y", "𝄞" * LONG), "an output's name of"),
        ),
    )
    return {"outputs": outputs}, CANNOT + complaint


def _lent(rng: random.Random) -> tuple[dict[str, Any], str]:
    """This client was lent nothing, and what others were is not its own."""
    return {"lent": (Lent(0, *_place(rng)),)}, CANNOT + "is not lent"


def _space(rng: random.Random) -> tuple[dict[str, Any], str]:
    return {"space": AnswerSpace(*_place(rng))}, CANNOT + "is not lent"


def _place(rng: random.Random) -> tuple[int, int, int]:
    segment = rng.choice((0, 1, 2, 3, (1 << 32) - 1))
    return segment, number(rng) % (1 << 64), number(rng) % (1 << 64)


WRONG: tuple[Callable[[random.Random], tuple[dict[str, Any], str]], ...] = (
    _too_late,
    _too_late,
    _weight,
    _weight,
    _long_name,
    _outputs,
    _lent,
    _space,
    lambda rng: ({"rows": one_of(rng, (0, 65, 1 << 31, (1 << 32) - 1, LAST))}, CANNOT + "(no rows|it has|rows have)"),
    lambda rng: ({"priority": one_of(rng, (-128, -101, 101, 127))}, "^priority is .* give one from -100"),
    lambda rng: ({"model": name(rng)}, "^no model"),
    lambda rng: ({"version": rng.choice((number(rng), name(rng)))}, "version"),
    lambda rng: ({"device": name(rng)}, "device"),
    lambda rng: ({"signature": name(rng)}, "signature"),
    lambda rng: ({"outputs": (name(rng),)}, "output"),
)


def _wrong_table(rng: random.Random, good: Job) -> Job:
    """Frames that are not what the table says, or a table that says nothing; with rows or without."""
    rows = good.submit.rows
    table, size = good.payload[0], len(good.payload[1])
    assert rows is not None

    def headers(*each: TensorHeader) -> bytes:
        return pack(Table(each))

    def header(dtype: str = "float32", shape: tuple[int, ...] = (ROWS,)) -> TensorHeader:
        return TensorHeader("x", dtype, shape, False)

    with_rows: list[list[bytes]] = [
        [],
        [b""],
        [table],
        [table[: rng.randrange(len(table))], bytes(size)],
        [table + b"\0", bytes(size)],
        [table, bytes(size + one_of(rng, (-1, 1, 4, 100_000)))],
        [table, bytes(size), b""],
        [b"\x91" * 70_000, bytes(size)],
        [b"\xdd\xff\xff\xff\xff", bytes(size)],
        [headers(), bytes(size)],
        [headers(header(), header()), bytes(size)],
        [headers(*[header()] * 5000), bytes(size)],
        [headers(header("object")), bytes(size)],
        [headers(header(name(rng))), bytes(size)],
        [headers(header(shape=(3,))), bytes(12)],
        [headers(header(shape=(ROWS, outside(rng, 0, (1 << 64) - 1)))), bytes(size)],
        [headers(header(shape=(ROWS, (1 << 64) - 1, (1 << 64) - 1))), bytes(size)],
        [headers(header(shape=(ROWS, *(1,) * 64))), bytes(size)],
        [headers(header(shape=(ROWS, *(2,) * 63))), bytes(size)],
        [headers(header("string")), bytes(size)],
        [headers(header("string")), (1).to_bytes(8, "little") * rows + b"more than one"],
        [pack(Table((header(),))).replace(b"float32", b"float3\xff"), bytes(size)],
    ]
    if rng.random() < 0.1:
        submit = replace(good.submit, rows=rng.choice((rows, None)))
        payload = [table + bytes(TABLE_BYTES + 1 - len(table)), bytes(size)]
        return Job(submit, payload, Owed(refused(CANNOT + f"a table of {TABLE_BYTES + 1} bytes")))
    if rng.random() < 0.7:
        return replace(good, payload=one_of(rng, with_rows), owed=Owed(refused(CANNOT)))
    whole: list[list[bytes]] = [
        [b"\xc1", b""],
        [table, bytes(size)],  # the axis of rows, of a job that has none
        [headers(header(shape=(1 << 62, 1 << 62))), b""],
        [headers(header(shape=(outside(rng, 0, (1 << 64) - 1),))), b""],
        [headers(header(shape=(3,))), bytes(13)],
        [headers(header("string", (1 << 40,))), bytes(8)],
    ]
    submit = replace(good.submit, model="echo", signature=None, rows=None)
    return Job(submit, one_of(rng, whole), Owed(refused_later("")))

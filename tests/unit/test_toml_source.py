"""On which line a key stands."""

import tomllib

from hypothesis import given
from hypothesis import strategies as st

from pool.config.source import KeyPath, TomlSource

TEXT = '''\
top = 1
[pool]
listen = [
  "tcp://x:1",  # [ is no bracket, "nor this a string
  "]",
]
endpoint = """
lanes = 9 ["
\\""" """
lanes = 3
note = \'\'\'
[queue]\'\'\'
[ session . "device_count" ]  # CPU = 9
CPU = 1
[[model]]
name = "a"
[[model]]
"name" = "b=["
session.jit = { a = [1,
  2] }
[model.extra]
deep = 1
'''


def test_lines() -> None:
    tomllib.loads(TEXT)
    source = TomlSource(TEXT)
    expected: dict[KeyPath, int | None] = {
        ("top",): 1,
        ("pool",): 2,
        ("pool", "listen"): 3,
        ("pool", "listen", 1): 3,
        ("pool", "endpoint"): 7,
        ("pool", "lanes"): 10,
        ("pool", "note"): 11,
        ("queue",): None,
        ("session",): 13,
        ("session", "device_count", "CPU"): 14,
        ("model",): 15,
        ("model", 0, "name"): 16,
        ("model", 0, "path"): 15,
        ("model", 1): 17,
        ("model", 1, "name"): 18,
        ("model", 1, "session", "jit", "a"): 19,
        ("model", 1, "extra", "deep"): 22,
        ("absent", "key"): None,
    }
    assert {path: source.line_of(path) for path in expected} == expected


_VALUES = st.sampled_from(
    [
        "1",
        '"#["',
        "'\"'",
        "[1, [2]]",
        '[\n  "]", # "\n]',
        '"""a\n[x]\ny = 1\n"""',
        "'''\n[\n'''",
        "{ a = [1] }",
        '"\\""',
    ]
)


@given(st.lists(_VALUES, min_size=1))
def test_no_value_hides_or_invents_a_key(values: list[str]) -> None:
    text, lines = "[pool]\n", []
    for number, value in enumerate(values):
        lines.append(text.count("\n") + 1)
        text += f"k{number} = {value}\n"
    assert len(tomllib.loads(text)["pool"]) == len(values)
    source = TomlSource(text)
    assert [source.line_of(("pool", f"k{number}")) for number in range(len(values))] == lines
    assert source.line_of(("y",)) is None

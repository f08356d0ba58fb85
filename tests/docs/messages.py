"""What the program says to a person: errors, log lines, refusals, tables, help texts.

These are all strings of the code with three words or more, but for the docstrings: of them, those of commands alone are
shown. What is filled in is one word.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from docs.markdown import ROOT

FEWEST_WORDS = 3
CODE = sorted(path for room in ("pool", "workers") for path in (ROOT / room).rglob("*.py"))

_FILLED_IN = re.compile(r"\{\d*\}|%[-\d.]*[a-z]")
_WORD = re.compile(r"[A-Za-z]{2,}")
# A colon or a semicolon ends a thought as a full stop does: "what was wrong; what would be right".
_SENTENCE = re.compile(r"(?<=[.!?:;…])[)\"”'*]*\s+|\n\s*")
# Calls whose strings are for programs: `"a b c".split()`, patterns, types.
_FOR_PROGRAMS = re.compile(r"^re\.\w+$|^cast$|^_keys$|\.split$")
_NAMES = re.compile(r"(?:[A-Z]\w+ ?)+")  # of TensorFlow's ops


@dataclass(frozen=True)
class Said:
    file: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}: {self.text}"

    def sentences(self) -> list[str]:
        return [part for part in _SENTENCE.split(self.text) if _WORD.search(part)]


def messages() -> list[Said]:
    return [said for file in CODE for said in messages_of(file, file.read_text(encoding="utf-8"))]


def messages_of(file: Path, code: str) -> list[Said]:
    tree = ast.parse(code)
    unseen = {id(node) for part in _unseen(tree) for node in ast.walk(part)}
    found = (Said(file, line, text) for node, line, text in _strings(tree) if id(node) not in unseen)
    return [said for said in found if len(_WORD.findall(said.text)) >= FEWEST_WORDS and not _is_one_name(said.text)]


def _unseen(tree: ast.Module) -> Iterator[ast.AST]:
    """What no person sees: docstrings of all but commands, types, patterns, and lists for programs."""
    shown = {id(node.body[0]) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _is_command(node)}
    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Constant()) if id(node) not in shown:
                yield node
            case ast.FunctionDef(returns=ast.AST() as returns) | ast.AsyncFunctionDef(returns=ast.AST() as returns):
                yield returns
            case ast.arg(annotation=ast.AST() as annotation) | ast.AnnAssign(annotation=annotation):
                yield annotation
            case ast.Subscript():  # of a type
                yield node.slice
            case ast.Call(func=func) if _FOR_PROGRAMS.search(ast.unparse(func)):
                yield node


def _is_one_name(text: str) -> bool:
    return " " not in text.strip() or _NAMES.fullmatch(text) is not None


def _is_command(function: ast.FunctionDef) -> bool:
    return any(re.search(r"\.(command|group)\b", ast.unparse(each)) for each in function.decorator_list)


def _strings(node: ast.AST) -> Iterator[tuple[ast.AST, int, str]]:
    if isinstance(node, ast.JoinedStr):
        parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        yield node, node.lineno, _FILLED_IN.sub("X", "".join(parts))
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                yield from _strings(part.value)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, str):
            yield node, node.lineno, _FILLED_IN.sub("X", node.value)
    else:
        for child in ast.iter_child_nodes(node):
            yield from _strings(child)

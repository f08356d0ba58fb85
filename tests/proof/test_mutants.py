"""Rules made wrong in one line each: some dependent graph must then be proven, or no test would notice the fault."""

from unittest.mock import patch

import pytest

from proof.dependent import DEPENDENT
from proof.making import question, traced
from proof.programs import PLAIN
from support.mutants import Mutant, modules
from workers.tf.graph import scopes
from workers.tf.row_rules import RULES
from workers.tf.row_values import Tensor
from workers.tf.rows import prove
from workers.tf.sizes import ROWS

pytestmark = pytest.mark.tensorflow
SIZES = [
    ("return ODD if any(map(has_rows, sizes)) else fresh()", "return fresh()"),
    ("    return all(abs(size) < 2**31 for size in sizes)", "    return True"),
]
VALUES = [
    ('raise Stop(f"works over the rows', 'pass; (f"works over the rows'),
    ("(len(others) > 1 or label not in result)", "label not in result"),
    ("(len(others) > 1 or label not in result)", "len(others) > 1"),
    ("    if sum(map(has_rows, dims)) > 1 or any", "    if any"),
    ("tensor.axis is None and not tensor.is_free and not may_count", "False"),
    ("if not all(tensor.is_free for tensor in self.tensors()[1:]):", "if False:"),
]
RULED = [
    ("or product(sizes[: result.axis]) != before", ""),
    ("if at == source.axis or batch", "if batch"),
    ("or source.shape[:batch] != places.shape[:batch]", ""),
    ("begin in (None, 0) and end", "end"),
    ("end in (None, size) and step == 1:", "step == 1:"),
    ("and step == 1:", "and True:"),
    ("begin, None if whole else", "0, None if whole else"),
    ("plus(begin, counted(count))", "fresh()"),
    ("elif has_rows(begin):", "elif False:"),
    ("if not before == after == 0", "if before != 0"),
    ("or rows.axis != 0 or op.sizes(0)[0] != rows.shape[0]", ""),
    ("elif tensor.axis != at or any", "elif any"),
    ('not op.attr("is_training").b', "True"),
    ("    op.alone()\n    (begin,)", "    (begin,)"),
    ("if sizes is None else shaped([rows, *sizes])", "if sizes else shaped([rows])"),
    ("if not op.tensor(1, True).is_free:", "if False:"),
    ("and found.shape[1:] != made.shape[1:]", "and False"),
    (".list.i or [None]", ".list.i"),
    ("broadcast(op, [_alike(op.tensors()), *op.tensors()])", "broadcast(op, op.tensors())"),
    ("    if len({(len(each.shape), each.axis,", "    if False and len({(len(each.shape), each.axis,"),
]
WALK = [
    ('if not _is_free(self._call(op.attr("cond")', 'if False and (self._call(op.attr("cond")'),
    ("            if joined == state:", "            if True:"),
    ("        if not _is_free(choice):", "        if False:"),
    ("return [*map(partial(_joined, op), *(", "return [*map(lambda one, other: other, *("),
    ("        if not _holds(op.inputs[0]):", "        if False:"),
    ("if isinstance(choice, Every) and all(node.op in _IDLE for", "if isinstance(choice, Every) and all(True for"),
    ("and shape.dim[tensor.axis].size >= 0:", "and False:"),
    ('_ASSERTIONS = ("Assert", "CheckNumerics", "EnsureShape")', '_ASSERTIONS = ("Assert", "CheckNumerics")'),
    (
        "if type(each) is Unknown:\n                return each",
        "if type(each) is Unknown:\n                return Tensor((ROWS,))",
    ),
]
TABLES = ("sizes", SIZES), ("row_values", VALUES), ("row_rules", RULED), ("rows", WALK)
MUTANTS = [Mutant("", file, *each) for file, table in TABLES for each in table]
ALIASES = {op for op in RULES if RULES[op] is RULES["Identity"]}
OLD = {"HashTable", "LookupTableFind", "MutableHashTable", "MutableHashTableV2", "ParseExample"}
OLD |= {"Variable", "VariableV2"}
"""Sessions alone run these, and each has the rule of a younger op."""
EMPTY = {"HashTableV2", "Placeholder", "TensorListReserve"}
"""What they give has no values yet."""


@pytest.fixture(scope="session")
def graphs():
    return {name: question(traced(*case)) for name, case in DEPENDENT.items()}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.old)
def test_a_wrong_rule_proves_a_dependent_graph(mutant, graphs):
    prove = modules("workers.tf", ["sizes", "row_values", "row_rules", "rows"], mutant)[-1]["prove"]
    assert [name for name, asked in graphs.items() if not all(prove(*asked).values())]


@pytest.mark.parametrize("op", sorted(RULES.keys() - {*PLAIN} - ALIASES - OLD - EMPTY))
def test_the_laxest_rule_proves_a_dependent_graph(op, graphs):
    def lax(op):
        rows = (each for each in op.inputs if isinstance(each, Tensor) and each.axis is not None)
        return [next(rows, Tensor((ROWS,)))] * op.outputs

    having = [
        asked for asked in graphs.values() if any(node.op == op for _, nodes in scopes(asked[0]) for node in nodes)
    ]
    with patch.dict(RULES, {op: lax}):
        assert not all(all(prove(*asked).values()) for asked in having)

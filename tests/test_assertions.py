"""Every test can fail: it asserts, or calls a function of the tests that does.

A test that passes because nothing raises would also pass if its subject did nothing. Calls are matched by
name: functions through the imports of the file, methods with all methods of the tests that have this name,
unless the product has one as well.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

CHECKS = {"pytest.raises", "pytest.fail", "pytest.warns", "run_state_machine_as_test"}
"""Functions of pytest and hypothesis that fail a test."""
BROWSER_CHECKS = {"wait_for", "wait_for_url", "wait_for_function", "wait_for_selector"}
"""Methods of playwright that fail unless the page reaches the state."""

AnyFunction = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class TestSource:
    """One file of the tests."""

    __test__ = False  # pytest would collect a class with this name

    module: str
    tree: ast.Module

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @cached_property
    def functions(self) -> list[AnyFunction]:
        return [node for node in self.nodes if isinstance(node, AnyFunction)]

    @cached_property
    def methods(self) -> set[AnyFunction]:
        classes = (node for node in self.nodes if isinstance(node, ast.ClassDef))
        return {node for body in classes for node in body.body if isinstance(node, AnyFunction)}

    @cached_property
    def imported(self) -> dict[str, str]:
        """Local names and what they stand for, such as until: tests.polling.until."""
        return {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in self.nodes
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def name(self, function: AnyFunction) -> str:
        return f".{function.name}" if function in self.methods else f"{self.module}.{function.name}"

    def called(self, function: AnyFunction) -> set[str]:
        """What it calls or passes to a call: module.function, or .method for an object."""
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        passed = (value for call in calls for value in call.args if isinstance(value, ast.Name))
        return {self._resolved(_written(called)) for called in (*(call.func for call in calls), *passed)}

    def _resolved(self, written: str) -> str:
        owner, _, name = written.rpartition(".")
        if owner in self.imported:
            return f"{self.imported[owner]}.{name}"
        return f".{name}" if owner else self.imported.get(name, f"{self.module}.{name}")


def without_assertion(tests: Mapping[str, str], product_methods: frozenset[str]) -> list[str]:
    """Test functions that neither assert nor call, directly or not, a function that does."""
    sources = [TestSource(module, ast.parse(text)) for module, text in tests.items()]
    functions = [(source, function) for source in sources for function in source.functions]
    unchecked = {f".{name}" for name in product_methods}
    loud = {function for _, function in functions if _asserts(function)}
    asserting = {source.name(function) for source, function in functions if function in loud} - unchecked
    silent = [
        (function.name, source.name(function), source.called(function))
        for source, function in functions
        if function not in loud
    ]
    while calling := {name for _, name, called in silent if asserting & called} - unchecked - asserting:
        asserting |= calling
    return sorted(
        qualified for name, qualified, called in silent if name.startswith("test_") and not asserting & called
    )


def _asserts(function: AnyFunction) -> bool:
    return any(
        (isinstance(node, ast.Assert) and not _is_for_types(node.test))
        or (isinstance(node, ast.Raise) and "AssertionError" in ast.unparse(node))
        or (isinstance(node, ast.Call) and _is_check(_written(node.func)))
        for node in ast.walk(function)
    )


def _is_for_types(test: ast.expr) -> bool:
    """`assert name is not None`, without a call: it tells the type checker what is known already."""
    return ast.unparse(test).endswith(" is not None") and not any(
        isinstance(node, ast.Call | ast.BoolOp) for node in ast.walk(test)
    )


def _written(expression: ast.expr) -> str:
    """ast.unparse, which is slow, for names and attributes of names."""
    match expression:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=owner, attr=name):
            return f"{_written(owner)}.{name}"
    return ast.unparse(expression)


def _is_check(called: str) -> bool:
    owner, _, name = called.rpartition(".")
    return called in CHECKS or (name in BROWSER_CHECKS and owner != "asyncio")


def _texts(*folders: str) -> Iterator[tuple[str, str]]:
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        yield ".".join(path.relative_to(ROOT).with_suffix("").parts), path.read_text()


def test_every_test_asserts():
    product = [TestSource(module, ast.parse(text)) for module, text in _texts("src")]
    methods = frozenset(method.name for source in product for method in source.methods)
    tests = dict(_texts("tests", "bench"))

    assert tests
    assert without_assertion(tests, methods) == []


ASSERTS = {
    "an assertion": "def test_it():\n    assert run()",
    "an expected exception": "def test_it():\n    with pytest.raises(ValueError):\n        run()",
    "a helper of the file": "def check():\n    assert 1\ndef test_it():\n    check()",
    "an imported helper": "from tests.polling import until\ndef test_it():\n    until(run)",
    "a helper of an imported module": "from tests import polling\ndef test_it():\n    polling.until(run)",
    "a result that is there": "def test_it():\n    assert run() is not None",
    "a state of the page": "def test_it(page):\n    page.wait_for()",
    "a method of an environment": "def test_it(env):\n    env.becomes()",
    "a helper that is passed on": "def check():\n    assert 1\ndef test_it(fuzz):\n    fuzz(check)",
    "a helper of a helper": "def check(env):\n    env.becomes()\ndef test_it(env):\n    check(env)",
}
DOES_NOT = {
    "a call": "def test_it():\n    run()",
    "a call that ends": "def test_it():\n    asyncio.wait_for(run(), 10)",
    "an assertion for the type checker": "def test_it(a):\n    assert a.task is not None\n    a.task.run()",
    "a method of the product": "def test_it(api):\n    api.create()",
    "a helper that does not assert": "def check():\n    run()\ndef test_it():\n    check()",
    "another function of this name": "from elsewhere import until\ndef test_it():\n    until(run)",
}
HELPERS = {
    "tests.polling": "def until(look):\n    assert look()",
    "tests.env": "class Env:\n    def becomes(self):\n        assert 1\n    def create():\n        assert 1",
}


@pytest.mark.parametrize("text", ASSERTS.values(), ids=ASSERTS)
def test_an_assertion_is_recognised(text):
    assert without_assertion({**HELPERS, "test_a": text}, frozenset({"create"})) == []


@pytest.mark.parametrize("text", DOES_NOT.values(), ids=DOES_NOT)
def test_a_test_without_assertion_is_found(text):
    assert without_assertion({**HELPERS, "test_a": text}, frozenset({"create"})) == ["test_a.test_it"]

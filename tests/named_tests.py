"""The tests of a file by name, for the checks of pages that name tests."""

import ast
from pathlib import Path


def in_file(file: Path) -> set[str]:
    """Names as pytest writes them: `test`, or `Class::test`."""
    found = set()
    for node in ast.parse(file.read_text()).body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        for member in members:
            if isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) and member.name.startswith("test_"):
                found.add(prefix + member.name)
    return found

"""The stub says in words what the module says: editors show the stub's.

`UPDATE_STUBS=1 python -m pytest python/tests/test_stubs.py` writes the words
of the installed module into the stub of this repository.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from pathlib import Path
from typing import Any

from thalweg import _thalweg

STUB = Path(__file__).resolve().parents[1] / "thalweg" / "_thalweg.pyi"


def words_of(value: Any, name: str) -> str:
    """The docstring of a class or of what it defines itself; empty if it has none."""
    if name.startswith("__") and not isinstance(value, type):
        return ""
    value = getattr(value, "__func__", value)
    return inspect.cleandoc(value.__doc__ or "")


def with_words(source: str) -> str:
    """The stub with the module's docstrings."""
    lines = source.splitlines(keepends=True)
    # From the last to the first, so that positions before stay what they are.
    found: list[tuple[ast.ClassDef | ast.FunctionDef, Any, str]] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            owner = getattr(_thalweg, node.name)
            found.append((node, owner, node.name))
            for member in node.body:
                if isinstance(member, ast.FunctionDef):
                    found.append((member, vars(owner).get(member.name), member.name))
        elif isinstance(node, ast.FunctionDef):
            found.append((node, getattr(_thalweg, node.name), node.name))
    for node, value, name in reversed(found):
        first = node.body[0]
        is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        words = words_of(value, name)
        indent = " " * (node.col_offset + 4)
        quoted = textwrap.indent(f'"""{words}\n"""' if "\n" in words else f'"""{words}"""', indent)
        assert "\\" not in words, f"{name}: a backslash would need a raw string"
        begin = min(
            [first.lineno, *(line.lineno for line in getattr(first, "decorator_list", []))]
        )
        if isinstance(node, ast.ClassDef):
            end = first.end_lineno if is_text else begin - 1
            assert end is not None
            lines[begin - 1 : end] = [f"{line}\n".lstrip(" ") if not line.strip() else f"{line}\n"
                                      for line in quoted.splitlines()]
            continue
        assert is_text and first.end_lineno is not None
        signature = lines[begin - 1][: first.col_offset].rstrip()
        if not signature:
            begin -= 1
            signature = lines[begin - 1].rstrip()
        body = [f"{line.rstrip()}\n" for line in quoted.splitlines()]
        new = [f"{signature}\n", *body] if words else [f"{signature} ...\n"]
        lines[begin - 1 : first.end_lineno] = new
    return "".join(lines)


def test_the_stub_has_the_modules_words() -> None:
    source = STUB.read_text()
    wanted = with_words(source)
    if os.environ.get("UPDATE_STUBS") == "1":
        STUB.write_text(wanted)
        return
    assert source == wanted, "run this test with UPDATE_STUBS=1 and commit the stub"


def test_everything_public_has_words() -> None:
    for name in _thalweg.__all__:
        owner = getattr(_thalweg, name)
        if not isinstance(owner, type):
            continue
        assert words_of(owner, name), name
        for member, value in vars(owner).items():
            if not member.startswith("_"):
                assert words_of(value, member), f"{name}.{member}"

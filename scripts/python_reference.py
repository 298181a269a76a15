"""Writes docs/reference/python.md from the docstrings of the package.

    python scripts/python_reference.py        prints the page

The classes are those of `python/thalweg/_thalweg.pyi` and of the modules that users
import, in the order in which they stand there; what begins with `_` is left out. A test
compares the page with this, and `UPDATE_DOCS=1` writes it anew.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "python" / "thalweg"

MODULES = {
    "thalweg": [
        PACKAGE / "_thalweg.pyi",
        PACKAGE / "descriptions.py",
        PACKAGE / "exceptions.py",
        PACKAGE / "plugins.py",
        PACKAGE / "_command.py",
    ],
    "thalweg.steps": [PACKAGE / "steps.py", PACKAGE / "_torch.py"],
    "thalweg.jobs": [PACKAGE / "jobs.py"],
}
"""Where what a module offers is written down."""

WIDTH = 100
"""Signatures that are longer have a line for each argument."""

HEAD = """# The Python package

What `help(thalweg.Topic)` says, on one page. It is generated from the docstrings: `UPDATE_DOCS=1 python -m pytest
python/tests/test_documentation.py` writes it anew. Types are as in the stub; `_Place`, `_Data` and other names that begin with
`_` are written out [below](#names-of-types).

"""


def public(name: str) -> bool:
    return not name.startswith("_") or name == "__new__"


def prose(node: ast.AST) -> str:
    """A docstring as Markdown: what it indents stays a list or code."""
    text = ast.get_docstring(node) if isinstance(node, ast.ClassDef | ast.FunctionDef) else None
    return f"{text}\n\n" if text else ""


def signature(name: str, function: ast.FunctionDef) -> str:
    """How it is called, as code."""
    arguments = ast.unparse(function.args)
    arguments = re.sub(r"^(self|cls)(, /)?(, )?", "", arguments)
    result = f" -> {ast.unparse(function.returns)}" if function.returns and function.name != "__new__" else ""
    line = f"{name}({arguments}){result}"
    if len(line) > WIDTH:
        parts = arguments_of(function)
        line = f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){result}"
    return f"```text\n{line}\n```\n\n"


def arguments_of(function: ast.FunctionDef) -> list[str]:
    """Its arguments with types and defaults, one by one."""
    said = function.args
    plain = [*said.posonlyargs, *said.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(said.defaults))
    parts = [one(argument, default) for argument, default in zip(plain, [*defaults, *said.defaults], strict=True)]
    if said.posonlyargs:
        parts.insert(len(said.posonlyargs), "/")
    if plain and plain[0].arg in ("self", "cls"):
        parts = parts[1:]
        if parts and parts[0] == "/":
            parts = parts[1:]
    if said.vararg:
        parts.append(f"*{one(said.vararg, None)}")
    elif said.kwonlyargs:
        parts.append("*")
    parts += [one(argument, default) for argument, default in zip(said.kwonlyargs, said.kw_defaults, strict=True)]
    if said.kwarg:
        parts.append(f"**{one(said.kwarg, None)}")
    return parts


def one(argument: ast.arg, default: ast.expr | None) -> str:
    said = argument.arg + (f": {ast.unparse(argument.annotation)}" if argument.annotation else "")
    if default is None:
        return said
    return f"{said} = {ast.unparse(default)}" if argument.annotation else f"{said}={ast.unparse(default)}"


def decorated(function: ast.FunctionDef, name: str) -> bool:
    return any(isinstance(one, ast.Name) and one.id == name for one in function.decorator_list)


def members(owner: str, body: list[ast.stmt]) -> Iterator[str]:
    properties = []
    for node in body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and public(node.target.id):
            properties.append((node.target.id, ast.unparse(node.annotation), following(body, node)))
        if not isinstance(node, ast.FunctionDef) or not public(node.name) or node.name == "__new__":
            continue
        if decorated(node, "overload"):
            continue
        if decorated(node, "property"):
            kind = ast.unparse(node.returns) if node.returns else ""
            properties.append((node.name, kind, ast.get_docstring(node) or ""))
            continue
        yield f"### `{owner}.{node.name}`\n\n{signature(node.name, node)}{prose(node)}"
    if properties:
        rows = "".join(f"| `{name}` | `{cell(kind)}` | {cell(text)} |\n" for name, kind, text in properties)
        yield f"| attribute of a `{owner}` | type | |\n| --- | --- | --- |\n{rows}\n"


def following(body: list[ast.stmt], node: ast.stmt) -> str:
    """The string behind an attribute, which says what it is."""
    behind = body[body.index(node) + 1 : body.index(node) + 2]
    for one in behind:
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant) and isinstance(one.value.value, str):
            return textwrap.dedent(one.value.value).strip()
    return ""


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def module(name: str, files: list[Path]) -> Iterator[str]:
    yield f"# `{name}`\n\n" if name != "thalweg" else ""
    for file in files:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and public(node.name):
                made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__new__"]
                bases = ", ".join(ast.unparse(base) for base in node.bases)
                yield f"## `{node.name}`\n\n" + (f"A `{bases}`.\n\n" if bases else "")
                yield "".join(signature(node.name, one) for one in made if not decorated(one, "overload"))
                yield prose(node)
                yield from members(node.name, node.body)
            elif isinstance(node, ast.FunctionDef) and public(node.name) and ast.get_docstring(node):
                yield f"## `{node.name}`\n\n{signature(node.name, node)}{prose(node)}"


def types() -> Iterator[str]:
    yield "## Names of types\n\n| name | is |\n| --- | --- |\n"
    files = [PACKAGE / "_thalweg.pyi", PACKAGE / "steps.py"]
    for node in (node for file in files for node in ast.walk(ast.parse(file.read_text()))):
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.annotation) == "TypeAlias" and node.value is not None:
            value = node.value.value if isinstance(node.value, ast.Constant) else ast.unparse(node.value)
            yield f"| `{ast.unparse(node.target)}` | `{cell(str(value))}` |\n"


def page() -> str:
    parts = [part for name, files in MODULES.items() for part in module(name, files)]
    return HEAD + "".join(parts) + "".join(types())


if __name__ == "__main__":
    print(page(), end="")

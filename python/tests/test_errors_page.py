"""docs/reference/errors.md has what the package raises, and where it gives None."""

from __future__ import annotations

import ast
from pathlib import Path

import thalweg

ROOT = Path(__file__).resolve().parents[2]


def rows(heading: str) -> list[list[str]]:
    """The cells of the rows of the table under a heading of the page on errors."""
    page = (ROOT / "docs" / "reference" / "errors.md").read_text()
    section = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_page_on_errors_has_a_row_for_each_exception() -> None:
    listed = {cells[0]: cells[1] for cells in rows("Exceptions")}
    own = [getattr(thalweg.exceptions, name) for name in thalweg.exceptions.__all__]
    builtin = {
        f"`{one.__name__}`": ", ".join(
            f"`{base.__name__}`"
            for base in one.__mro__
            if base.__module__ == "builtins"
            and base not in (object, BaseException, Exception, Warning)
        )
        for one in own
    }
    assert listed.keys() == builtin.keys()
    # The nearest built-in class that is of use in an `except`.
    assert {name: builtin[name].split(", ")[0] for name in listed} == listed


def test_the_page_on_errors_lists_what_may_give_none() -> None:
    package = ROOT / "python" / "thalweg"
    modules = [
        ("", ast.parse((package / "_thalweg.pyi").read_text())),
        ("steps.", ast.parse((package / "steps.py").read_text())),
    ]
    may_give_none = [
        f"`{prefix}{one.name}.{function.name}`"
        for prefix, module in modules
        for one in module.body if isinstance(one, ast.ClassDef)
        for function in one.body if isinstance(function, ast.FunctionDef)
        if function.returns is not None
        and not one.name.startswith("_") and not function.name.startswith("_")
        and ast.unparse(function.returns).endswith("| None")
    ]
    listed = " ".join(cells[0] for cells in rows("Where None stands"))
    assert len(may_give_none) > 5
    assert "`steps.Reader.next`" in may_give_none
    assert [name for name in may_give_none if name not in listed] == []

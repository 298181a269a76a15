"""What the documentation names is there."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import thalweg

ROOT = Path(__file__).resolve().parents[2]
DOCS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]

# What a page calls an object that has these methods, in Python.
CLASSES = {
    "driver": [thalweg.Driver],
    "topic": [thalweg.Topic],
    "producer": [thalweg.Producer],
    "consumer": [thalweg.Consumer, thalweg.QueueConsumer],
    "queue": [thalweg.QueueConsumer],
    "requester": [thalweg.Requester],
    "event": [thalweg.Event, thalweg.QueueEvent],
}


def test_methods_that_the_pages_call_exist() -> None:
    headers = "".join(path.read_text() for path in (ROOT / "include").rglob("*.hpp"))
    in_cpp = set(re.findall(r"\b(\w+)\(", headers))
    called = re.compile(rf"\b({'|'.join(CLASSES)})\.(\w+)\(")
    missing = [
        f"{page.relative_to(ROOT)}: {found[0]}"
        for page in DOCS
        # The programs' pages are about other packages' classes, too.
        if page.parent.name != "programs"
        for found in called.finditer(page.read_text())
        if not any(hasattr(one, found[2]) for one in CLASSES[found[1]]) and found[2] not in in_cpp
    ]
    assert missing == []


def pages_with(pattern: str) -> Iterator[tuple[Path, re.Match[str]]]:
    """Each place of a pattern in a page; the reference that is generated names itself."""
    for page in DOCS:
        for found in re.finditer(pattern, page.read_text()):
            yield page.relative_to(ROOT), found


def test_names_of_the_python_package_exist() -> None:
    missing = [
        f"{page}: {found[0]}"
        for page, found in pages_with(r"\bthalweg\.([A-Za-z_]\w*)(?:\.([A-Za-z_]\w*))?")
        # Files of that name: thalweg.json, and what the server makes.
        if found[1] not in ("json", "sock", "service", "so", "pc", "h", "hpp", "yaml", "toml")
        # Headers of events, and names in C++.
        and not found[0].startswith(tuple(f"thalweg.{name}" for name in HEADERS))
        and not has(found[1], found[2])
    ]
    assert missing == []


HEADERS = sorted(
    {
        name
        for source in (ROOT / "crates").rglob("src/**/*.rs")
        for name in re.findall(r'"thalweg\.(\w+)"', source.read_text())
    }
)
"""Names of headers that clients and server write, without their prefix."""


def has(name: str, attribute: str | None) -> bool:
    module = ROOT / "python" / "thalweg" / name / str(attribute)
    if module.is_dir() or module.with_suffix(".py").exists():
        return True  # it may need another package to be imported
    try:
        found = getattr(thalweg, name, None) or importlib.import_module(f"thalweg.{name}")
    except ImportError:
        return False
    return attribute is None or hasattr(found, attribute)


def test_functions_of_the_c_interface_exist() -> None:
    headers = "".join(path.read_text() for path in (ROOT / "include").rglob("*.h"))
    declared = set(re.findall(r"\bthalweg_\w+", headers))
    missing = {
        f"{page}: {found[0]}"
        for page, found in pages_with(r"\bthalweg_[a-z]\w*[a-z]\b(?!\*)")
        if found[0] not in declared and not found[0].startswith(("thalweg_mofka", "thalweg_plugin"))
    }
    assert sorted(missing) == []


def options_of(command: str, reference: str) -> set[str]:
    """The options of a command, by its section of the generated reference."""
    section = re.search(rf"^#+ `?thalweg {re.escape(command)}`?$(.*?)(?=^#+ `?thalweg |\Z)", reference, re.M | re.S)
    assert section is not None, f"the reference has no command {command!r}"
    return set(re.findall(r"--[a-z][a-z-]*", section[1]))


def test_commands_and_options_exist() -> None:
    pages = ("cli.md", "cli-gateway.md", "cli-relay.md", "cli-pair.md", "cli-steps.md", "cli-token.md", "cli-topic.md",
             "cli-nodes.md", "cli-bench.md", "cli-workload.md")
    reference = "".join((ROOT / "docs" / "reference" / name).read_text() for name in pages)
    commands = set(re.findall(r"^#+ `?thalweg ([a-z][a-z -]*?)`?$", reference, re.M))
    connection = re.search(r"^## Connection$(.*?)^## ", reference, re.M | re.S)
    assert connection is not None
    everywhere = {"--help", "--version", "--json", *re.findall(r"--[a-z][a-z-]*", connection[1])}
    settings = (ROOT / "docs" / "reference" / "configuration.md").read_text()
    of_serve = set(re.findall(r"flag `(--[a-z-]+)", settings))
    # What all benchmarks have in common stands before them.
    of_bench = set(re.findall(r"--[a-z][a-z-]*", (ROOT / "docs" / "reference" / "cli-bench.md").read_text()))
    more = {"serve": of_serve, "bench": of_bench}
    missing = []
    for page, found in pages_with(r"(?m)(?:^|`)thalweg ((?:[a-z][a-z-]* ?)+)([^\n`|#>&]*)"):
        words = found[1].split()
        command = next((" ".join(words[:n]) for n in (2, 1) if " ".join(words[:n]) in commands), None)
        if words[0] == "help":
            continue
        if command is None:
            missing.append(f"{page}: {found[0]}")
            continue
        known = options_of(command, reference) | everywhere | more.get(words[0], set())
        # What stands behind -- is for the servers that the command starts.
        own, _, handed_on = found[2].partition(" -- ")
        missing += [
            f"{page}: thalweg {name} {option}"
            for name, text, options in ((command, own, known), ("serve", handed_on, of_serve))
            for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
            if option not in options
        ]
    assert missing == []


def test_the_python_reference_is_what_the_docstrings_say() -> None:
    page = ROOT / "docs" / "reference" / "python.md"
    command = [sys.executable, ROOT / "scripts" / "python_reference.py"]
    now = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    if os.environ.get("UPDATE_DOCS"):
        page.write_text(now)
    assert page.read_text() == now, "run it with UPDATE_DOCS=1"


def test_the_page_on_storage_lists_each_setting_and_no_other() -> None:
    page = (ROOT / "docs" / "reference" / "storage.md").read_text()
    for kind, source in [("disk", "settings.rs"), ("memory", "memory.rs")]:
        code = (ROOT / "crates" / "log" / "src" / source).read_text()
        settings = re.search(r"pub struct (?:Disk|Memory)Settings \{(.*?)\n\}", code, re.DOTALL)
        section = page.split(f"## Configuration of `{kind}`")[1].split("\n## ")[0]
        rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
        listed = re.findall(r"`(\w+)`", "".join(rows))
        assert settings is not None
        assert sorted(listed) == sorted(re.findall(r"pub (\w+):", settings[1]))

"""What the documentation names is there."""

from __future__ import annotations

import re
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

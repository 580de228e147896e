"""Real records for the tests, as files of JSON Lines.

The stored records of `crates/tcptoll/tests/records` are runs of the program, printed so that a difference
can be read. Here each becomes what a run writes: one object per line. The summary is left out, because the
stored one lacks its arms; the program then concludes from the trials, as of a run that was killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
STORED = ROOT / "crates/tcptoll/tests/records"
#: A summary, a watch, and a merged record.
OTHERS = ("hostile", "split", "watch")
NAMES = sorted(path.stem for path in STORED.glob("*.json") if path.stem not in OTHERS)


def lines_of(name: str) -> Iterator[dict[str, Any]]:
    """The objects of a stored record."""
    text = (STORED / f"{name}.json").read_text(encoding="utf-8")
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        line, at = decoder.raw_decode(text, at)
        yield line
        while at < len(text) and text[at].isspace():
            at += 1


def written(line: dict[str, Any]) -> str:
    """A line as the program writes it."""
    return json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n"


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every stored record."""
    folder = tmp_path_factory.mktemp("records")
    for name in NAMES:
        text = "".join(written(line) for line in lines_of(name) if line["line"] != "summary")
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def program() -> str:
    """The program, for what only it concludes."""
    named = os.environ.get("TCPTOLL_BINARY")
    if not named:
        pytest.skip("TCPTOLL_BINARY names no program; `cargo xtask test` sets it")
    return named

"""What the tests of fleets share: a program that only pretends to measure, and a study of it."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import zlib
from pathlib import Path
from typing import Any

from tcptoll.fleet.plan import PROTOCOL, Plan, Study, canonical
from tcptoll.fleet.task import Settings

PACKAGE = Path(__file__).resolve().parents[1]
FAKE = Path(__file__).with_name("fake_tcptoll.py")


def fake_program(folder: Path, version: str = "0.1.0") -> Path:
    """A program that behaves like tcptoll."""
    path = folder / f"tcptoll-{version}"
    path.write_text(f'#!/bin/sh\nFAKE_VERSION={version} exec "{sys.executable}" -SE "{FAKE}" "$@"\n', encoding="utf-8")
    path.chmod(0o755)
    return path


def study_file(folder: Path, **knobs: object) -> Path:
    """A study that the fake program understands; `rounds`, `trial` in seconds, and so on."""
    path = folder / "fake.toml"
    shown = " ".join(f"{name}={value}" for name, value in knobs.items())
    path.write_text(f'name = "fake"\nexperiment = "connect"\n# fake: {shown}\n', encoding="utf-8")
    return path


def plan_of(*points: str, text: str = "", most_rounds: int = 2) -> Plan:
    document = {"name": "fake", "text": text, "settings": {}} if text else {"name": "fake"}
    study = Study(text, "fake", "connect", ("a", "b"), 2, most_rounds, 0.1, 0.1, 0.1, (), canonical(document))
    return Plan(study, 7, "0.1.0", points)


def record_of(point: str, trials: int = 4, **header: Any) -> bytes:
    """A record as the fake program writes it."""
    first = {"line": "header", "record_version": 2, "experiment": "connect", "study": {"name": "fake"}, "seed": plan_of().seed_of(point),
             "tcptoll_version": "0.1.0", "vantage": point, **header}  # fmt: skip
    rows: list[dict[str, Any]] = [first, *({"line": "trial", "round": n} for n in range(trials)), {"line": "summary"}]
    return b"".join(json.dumps(row, separators=(",", ":")).encode() + b"\n" for row in rows)


def payload_of(content: bytes, /, **other: Any) -> dict[str, Any]:
    """A result as a worker returns it."""
    measured = sum(b'"trial"' in line for line in content.splitlines())
    return {"protocol": PROTOCOL, "status": 0, "error": "", "record": zlib.compress(content), "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(), "measured": measured, "found": 0, **other}  # fmt: skip


def settings_of(folder: Path) -> Settings:
    return Settings(store=str(folder / "store"), binary=str(fake_program(folder)), poll_s=0.05)


def environment(folder: Path) -> dict[str, str]:
    """Of a process that finds the package, and the fake program."""
    return {**os.environ, "PYTHONPATH": str(PACKAGE), "TCPTOLL_BINARY": str(fake_program(folder)),
            "XDG_DATA_HOME": str(folder / "data")}  # fmt: skip


def measured_twice(path: Path) -> int:
    """Trials of a record that measured the same again, other than those that were stopped."""
    seen: set[tuple[object, ...]] = set()
    twice = 0
    for line in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["line"] == "trial" and not row["arm"].get("partial"):
            place = row["round"], row["arm"]["name"], row["attempt"]
            twice += place in seen
            seen.add(place)
    return twice


def trials_in(path: Path) -> int:
    """Complete trials that were not stopped."""
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return sum(row["line"] == "trial" and not row["arm"].get("partial") for row in rows)


def state_of(out: Path) -> dict[str, Any]:
    """The points in fleet.json."""
    points = json.loads((out / "fleet.json").read_text(encoding="utf-8"))["points"]
    assert isinstance(points, dict)
    return points

#!/usr/bin/env python3
"""Stands in for the program in tests of fleets: it writes records like a run's, without measuring.

The study is a TOML file; of it, only `name` and lines like `# fake: rounds=3 trial=0.05 status=0` are read. Environment:
FAKE_VERSION, another version to claim.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import select
import sys
import time
from pathlib import Path
from typing import Any

VERSION = os.environ.get("FAKE_VERSION", "0.1.0")
ARMS = ["a", "b"]


def fail(sentence: str) -> int:
    print(f"error: {sentence}", file=sys.stderr)
    return 2


def knobs(text: str) -> dict[str, str]:
    return dict(re.findall(r"(\w+)=(\S+)", "".join(re.findall(r"^# fake:(.*)$", text, re.M))))


def study_of(text: str) -> dict[str, Any]:
    return {"name": knobs(text).get("name", "fake"), "text": text, "settings": {}}


def check(path: str) -> int:
    text = Path(path).read_text(encoding="utf-8")
    if "experiment" not in text:
        return fail(f"study {path}: it names no experiment")
    given = knobs(text)
    rounds, trial = int(given.get("rounds", 3)), float(given.get("trial", 0.02))
    targets = [given["target"]] if "target" in given else []
    print(json.dumps({"experiment": "connect", "arms": ARMS, "rounds": {"least": rounds, "most": rounds},
                      "round_s": 2 * trial, "least_s": 2 * trial * rounds, "most_s": 2 * trial * rounds,
                      "targets": targets, "record_version": 2, "study": study_of(text)}))  # fmt: skip
    return 0


def line(kind: str, **more: Any) -> bytes:
    return json.dumps({"line": kind, **more}, separators=(",", ":")).encode() + b"\n"


def run(arguments: list[str]) -> int:
    options = dict(one[2:].partition("=")[::2] for one in arguments if one.startswith("--"))
    resumed = "resume" in options
    path = Path(options.get("resume") or options["out"])
    with open(path, "ab+") as record:
        try:
            fcntl.flock(record, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return fail(f"record {path}: another run is writing it")
        record.seek(0)
        before = record.read()
        if resumed and not before:
            return fail(f"record {path}: it is empty, because the run ended before its first trial: start a new run")
        if resumed:
            text = json.loads(before.split(b"\n")[0])["study"]["text"]
        else:
            record.truncate(0)
            before = b""
            text = Path(arguments[0]).read_text(encoding="utf-8")
        return measure(record, before, text, options, resumed)


def studied(text: str, setting: str) -> dict[str, Any]:
    name, _, value = setting.partition("=")
    return {**study_of(text), "settings": {name: value} if value else {}}


def measure(record: Any, before: bytes, text: str, options: dict[str, str], resumed: bool) -> int:
    given = knobs(text)
    trials = [json.loads(one) for one in before.split(b"\n") if one.startswith(b'{"line":"trial"')]
    done = {(one["round"], one["arm"]["name"]) for one in trials if not one["arm"].get("partial")}
    missing = [(n, arm) for n in range(int(given.get("rounds", 3))) for arm in ARMS if (n, arm) not in done]
    if resumed and missing:
        record.write(line("resumed", at="", after_s=1.0))
    if not resumed:
        record.write(line("header", record_version=2, experiment="connect", study=studied(text, options.get("set", "")),
                          command=sys.argv, started_at="2026-01-01T00:00:00Z", seed=int(options["seed"]),
                          tcptoll_version=VERSION, vantage=given.get("lies", options["vantage"]),
                          share=options.get("set", "").removeprefix("share="), start_at=options.get("start-at")))  # fmt: skip
    if given.get("fails") == "yes":
        record.truncate(0)
        return fail("the server is not reachable")
    for number, arm in missing:
        begun = time.time()
        if select.select([sys.stdin], [], [], float(given.get("trial", 0.02)))[0]:
            record.write(line("trial", round=number, order=0, attempt=0, arm={"name": arm, "partial": True}))
            record.write(line("summary", partial=True))
            return 143
        record.write(line("trial", round=number, order=0, attempt=0, began_s=begun, arm={"name": arm}))
        record.flush()
    if missing:
        record.write(line("summary", record_version=2))
    return int(given.get("status", 0))


def merge(arguments: list[str]) -> int:
    records = [one for one in arguments if not one.startswith("--")]
    missing = [one for one in arguments if one.startswith("--missing=")]
    for one in arguments:
        if one.startswith("--out="):
            Path(one[6:]).write_text("merged\n", encoding="utf-8")
    print("merged", *sorted(Path(one).stem for one in records), *missing)
    return 1 if missing else 0


def main(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"tcptoll {VERSION} (fake)")
        return 0
    if arguments[:2] == ["study", "check"]:
        return check(arguments[2])
    if arguments[:2] == ["study", "run"]:
        return run(arguments[2:])
    return merge(arguments[1:]) if arguments[:1] == ["merge"] else fail(f"no command {arguments}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

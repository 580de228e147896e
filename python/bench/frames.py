"""How long 6,000 trials take to become a frame, and how much memory.

    python python/bench/frames.py [--engine polars|pandas|rows] [--records N]

Makes 100 records of 60 trials in a temporary folder: 30 rounds of two arms, each trial with the fields, metrics
and distributions of a real `connect`. Prints seconds for reading and for each table, and the peak of resident
memory, imports included. The goal is 1.5 s and 200 MB; nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import importlib
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

STORED = ROOT / "crates/tcptoll/tests/records/connect_rounds.json"
ROUNDS = 30
MOST_S, MOST_MB = 1.5, 200
ARMS = 2


def main() -> None:
    """Makes the records in a process of their own, so that its memory is not counted."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--engine", choices=("polars", "pandas", "rows"), default="polars")
    parser.add_argument("--records", type=int, default=100)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.make:
        make(Path(arguments.make), arguments.records)
        return
    with tempfile.TemporaryDirectory() as folder:
        import subprocess

        line = [sys.executable, __file__, "--make", folder, "--records", str(arguments.records)]
        subprocess.run(line, check=True)
        measure(Path(folder), arguments.engine)


def make(folder: Path, records: int) -> None:
    """Writes the records."""
    lines = []
    text, at, decoder = STORED.read_text(encoding="utf-8"), 0, json.JSONDecoder()
    while at < len(text.rstrip()):
        line, at = decoder.raw_decode(text, at)
        lines.append(line)
        at += len(text[at:]) - len(text[at:].lstrip())
    header, trials = lines[0], [line for line in lines if line["line"] == "trial"]
    of_arm = {trial["arm"]["name"]: trial for trial in trials}
    for record in range(records):
        with open(folder / f"{record:03}.jsonl", "w", encoding="utf-8") as file:
            file.write(json.dumps(header, separators=(",", ":")) + "\n")
            for round_ in range(ROUNDS):
                for order, trial in enumerate(of_arm.values()):
                    line = {**trial, "round": round_, "order": order, "attempt": 0}
                    file.write(json.dumps(line, separators=(",", ":")) + "\n")


def measure(folder: Path, engine: str) -> None:
    """Times each step."""
    begun = time.perf_counter()
    if engine != "rows":
        importlib.import_module(engine)
    print(f"import {engine:<8} {time.perf_counter() - begun:6.2f} s, {memory():4.0f} MB")
    tcptoll = importlib.import_module("tcptoll")
    size = sum(path.stat().st_size for path in folder.iterdir()) / 1e6
    begun = time.perf_counter()
    records = tcptoll.Records(folder)
    read = time.perf_counter() - begun
    print(f"read            {read:6.2f} s, {memory():4.0f} MB ({len(records)} records, {size:.1f} MB)")
    whole = read
    for table in ("trials", "metrics"):
        begun = time.perf_counter()
        frame = getattr(records, table)(engine=engine)
        took = time.perf_counter() - begun
        whole += took
        print(f"{table:<15} {took:6.2f} s, {memory():4.0f} MB ({len(frame):,} rows)")
    print(f"in all          {whole:6.2f} s without the import, peak {memory():.0f} MB")
    if engine != "rows":
        met = whole <= MOST_S and memory() <= MOST_MB
        print(f"figure: 6,000 trials into frames of {engine}, without its import | at most {MOST_S} s, {MOST_MB} MB | {whole:.2f} s, "
              f"{memory():.0f} MB | {'met' if met else 'MISSED'}")  # fmt: skip


def memory() -> float:
    """Peak of resident memory, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()

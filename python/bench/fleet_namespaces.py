"""A fleet of five workers behind links of 1 to 200 ms, in network namespaces: one worker is killed while it measures,
one after its end, and one never returns.

    sudo python bench/fleet_namespaces.py PROGRAM

Needs root, `ip`, /dev/net/tun and `distributed`. The namespaces are made here and removed at the end. Prints what
became of each point, and exits with 1 if something was measured twice, was lost, or if the deadline was missed.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).resolve().parents[1]
#: Round trips to the points, in ms.
POINTS = {"near": 1, "killed": 10, "middle": 50, "ended": 100, "never": 200}
DEADLINE_S = 30
MOST_ERROR_S = 1.0
#: A worker that is killed has measured so many trials before.
KILLED_AFTER = 4
STUDY = """\
name = "fleet"
question = "Does a longer backlog change the connect latency?"
experiment = "connect"
[settings]
count = 100
[rounds]
fixed = 10
[[arm]]
name = "short"
backlog = 16
[[arm]]
name = "long"
backlog = 128
"""


class Fleet:
    """The namespaces and the processes in them."""

    def __init__(self, folder: Path, program: str) -> None:
        self.folder, self.program = folder, program
        self.prefix = f"tcptoll-{os.getpid()}"
        self.spaces: list[str] = []
        self.children: dict[str, subprocess.Popen[str]] = {}

    def build(self) -> None:
        """A star: the scheduler, and a link with its delay to each point."""
        for name in ("hub", *POINTS):
            self._space(name)
        links = [f"{self.space(name)}={delay}" for name, delay in POINTS.items()]
        pipe = subprocess.PIPE
        relay = subprocess.Popen([sys.executable, str(Path(__file__).with_name("delays.py")), self.space("hub"), *links],
                                 stdin=pipe, stdout=pipe, text=True)  # fmt: skip
        self.children["relay"] = relay
        assert relay.stdout
        if relay.stdout.readline() != "ready\n":
            raise SystemExit("error: the links could not be made; see the lines before")
        for number, name in enumerate(POINTS, 1):
            for where, device, last in ((self.space("hub"), f"v{number}", 1), (self.space(name), "uplink", 2)):
                ip("-n", where, "addr", "add", f"10.79.{number}.{last}/30", "dev", device)
                ip("-n", where, "link", "set", device, "up")
        ready(self.start("scheduler", "hub", ["scheduler", "--host", "0.0.0.0"]))

    def worker(self, name: str) -> subprocess.Popen[str]:
        """Starts the worker of a point. That of `never` has a program that blocks."""
        number = list(POINTS).index(name) + 1
        program = self.program
        if name == "never":
            program = str(self.folder / "blocks")
            Path(program).write_text(f'#!/bin/sh\n[ "$1" = --version ] && exec "{self.program}" --version\nexec sleep 1000\n')
            os.chmod(program, 0o755)
        options = ["--vantage", name, "--store", str(self.folder / "store" / name), "--binary", program]
        return self.start(name, name, ["worker", f"tcp://10.79.{number}.1:8786", *options])

    def kill(self, name: str) -> None:
        child = self.children.pop(name)
        child.kill()
        child.wait()

    def start(self, name: str, space: str, typed: list[str], **more: Any) -> subprocess.Popen[str]:
        command = ["ip", "netns", "exec", self.space(space), sys.executable, "-m", "tcptoll", *typed]
        environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "TCPTOLL_BINARY": self.program}
        child = subprocess.Popen(command, env=environment, text=True, stderr=subprocess.PIPE, **more)
        self.children[name] = child
        return child

    def close(self) -> None:
        for child in self.children.values():
            child.kill()
            child.wait()
        for space in self.spaces:
            subprocess.run(["ip", "netns", "del", space], check=False)

    def space(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _space(self, name: str) -> None:
        ip("netns", "add", self.space(name))
        self.spaces.append(self.space(name))
        ip("-n", self.space(name), "link", "set", "lo", "up")


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"error: ip {' '.join(arguments)}: {done.stderr.strip()}")


def ready(child: subprocess.Popen[str]) -> None:
    """Waits until it says that it serves; then its messages are read and dropped."""
    assert child.stderr
    said = ""
    for line in child.stderr:
        if line.startswith(("vantage point", "scheduler at")):
            break
        said += line
    else:
        raise SystemExit(f"error: {said}")
    threading.Thread(target=lambda: [None for _ in child.stderr or ()], daemon=True).start()


def state(out: Path, name: str) -> dict[str, Any]:
    with contextlib.suppress(OSError, ValueError, KeyError):
        point = json.loads((out / "fleet.json").read_text(encoding="utf-8"))["points"][name]
        assert isinstance(point, dict)
        return point
    return {"state": "", "done": 0}


def wait_for(what: Any, most_s: float) -> None:
    ends = time.monotonic() + most_s
    while not what():
        if time.monotonic() > ends:
            raise SystemExit("error: the fleet does not get on; see fleet.json")
        time.sleep(0.05)


def disturb(fleet: Fleet, out: Path) -> None:
    """Kills a worker in the middle and another after its end, and replaces both."""
    wait_for(lambda: state(out, "killed")["done"] >= KILLED_AFTER, DEADLINE_S)
    fleet.kill("killed")
    ready(fleet.worker("killed"))
    wait_for(lambda: state(out, "ended")["state"] == "done", DEADLINE_S)
    fleet.kill("ended")
    ready(fleet.worker("ended"))


def run(fleet: Fleet, out: Path, *typed: str) -> tuple[dict[str, float], int, str]:
    """When each line came on stderr (and `end`), the exit status, and what was printed."""
    scheduler = ["--scheduler", "tcp://127.0.0.1:8786", "--out", str(out), "--seed", "7"]
    child = fleet.start("run", "hub", ["fleet", "run", str(fleet.folder / "study.toml"), *scheduler, *typed], stdout=subprocess.PIPE)
    assert child.stderr and child.stdout
    moments: dict[str, float] = {}
    for line in child.stderr:
        moments.setdefault(line.strip(), time.monotonic())
        print(f"  {line.rstrip()}", file=sys.stderr)
    printed = child.stdout.read()
    status = child.wait()
    moments["end"] = time.monotonic()
    del fleet.children["run"]
    return moments, status, printed


def trials(path: Path) -> tuple[int, int, int]:
    """Complete trials of a record, how many of them measured the same again, and how many were stopped."""
    seen: set[tuple[object, ...]] = set()
    complete = twice = stopped = 0
    for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
        if row["line"] != "trial":
            continue
        if row["arm"].get("partial"):
            stopped += 1
            continue
        place = row["round"], row["arm"]["name"], row["attempt"]
        complete, twice = complete + 1, twice + (place in seen)
        seen.add(place)
    return complete, twice, stopped


def report(out: Path) -> int:
    """Prints a line for each point; the number of trials that were measured twice or are missing."""
    wrong = 0
    print(f"{'point':<8} {'rtt':>7} {'result':<8} {'trials':>6} {'twice':>5} {'stopped':>7} {'attempts':>8} {'s':>6}  reason")
    for name, delay in POINTS.items():
        point, path = state(out, name), out / "points" / f"{name}.jsonl"
        complete, twice, stopped = trials(path) if path.exists() else (0, 0, 0)
        print(f"{name:<8} {delay:>4} ms {point['state']:<8} {complete:>6} {twice:>5} {stopped:>7} {point['attempts']:>8} "
              f"{point['seconds']:>6.1f}  {point['reason']}")  # fmt: skip
        wrong += twice + (name != "never" and complete < point["planned"])
    return wrong


@contextlib.contextmanager
def built(program: str) -> Iterator[Fleet]:
    folder = Path(tempfile.mkdtemp(prefix="tcptoll-fleet-"))
    fleet = Fleet(folder, program)
    try:
        fleet.build()
        (folder / "study.toml").write_text(STUDY, encoding="utf-8")
        for child in [fleet.worker(name) for name in POINTS]:
            ready(child)
        yield fleet
    finally:
        fleet.close()
        shutil.rmtree(folder, ignore_errors=True)


def main(program: str) -> int:
    with built(program) as fleet:
        out = fleet.folder / "out"
        threading.Thread(target=disturb, args=(fleet, out), daemon=True).start()
        moments, status, printed = run(fleet, out, "--deadline", f"{DEADLINE_S}s")
        print(printed)
        wrong = report(out)
        begun = moments["near: waiting"]
        missing = next(moment for line, moment in moments.items() if line.startswith("never: missing"))
        error = missing - begun - DEADLINE_S
        print(f"\ndeadline {DEADLINE_S} s: {error:+.2f} s when the point was missing, {moments['end'] - begun - DEADLINE_S:+.2f} s "
              f"when the command ended, with the merge; exit status {status}")  # fmt: skip
        merged = (out / "merged.jsonl").read_text(encoding="utf-8")
        is_partial = re.search(r'"partial":\s*true', merged) is not None
        print(f"merged record: partial {is_partial}, names the missing point {'never' in merged}")

        again = fleet.folder / "again"
        _, second, _ = run(fleet, again, "--deadline", "30s", "--points", "ended")
        found, measured = state(again, "ended"), trials(again / "points/ended.jsonl")[0]
        print(f"ended, killed after its end, asked again: {measured} trials, {found['found']} of them found on its disk, "
              f"{found['done'] - found['found']} measured again; exit status {second}")  # fmt: skip
        wrong += found["done"] - found["found"]
        late = moments["end"] - begun - DEADLINE_S
        met = wrong == 0 and abs(error) <= MOST_ERROR_S and late <= MOST_ERROR_S and status == 1 and second == 0 and is_partial
        done = sum(state(out, name)["state"] == "done" for name in POINTS)
        print(f"figure: scheduler and 5 workers in namespaces, links of 1 to 200 ms; one killed in the middle, one after its end, "
              f"one never returns | 4 of 5 points; measured twice or lost 0; deadline ± 1 s; partial, the missing named | {done} of 5 "
              f"points; {wrong}; {error:+.2f} s missing, {late:+.2f} s ended; partial {is_partial}, named {'never' in merged} | "
              f"{'met' if met else 'MISSED'}")  # fmt: skip
        return int(not met)


if __name__ == "__main__":
    if len(sys.argv) != 2 or os.geteuid() != 0:
        sys.exit("usage (as root): python bench/fleet_namespaces.py PROGRAM")
    sys.exit(main(os.path.abspath(sys.argv[1])))

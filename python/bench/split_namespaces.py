"""A load of nginx, split over three machines in network namespaces: what was due is what was asked for, and the
server's own log has as many requests as the merged record.

    sudo python bench/split_namespaces.py PROGRAM

Needs root, `ip`, /dev/net/tun, nginx and `distributed`. Exits with 1 if a count differs.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fleet_namespaces as bench

#: Round trips to the machines, in ms.
MACHINES = {"one": 1, "two": 5, "three": 20}
SERVER = "10.79.0.1"
#: 1,501 requests in each of 3 rounds: not a multiple of 3, so the shares differ.
STUDY = f"""\
name = "split"
question = "How fast does nginx answer 300 requests per second from three machines?"
experiment = "http"
[settings]
url = "http://{SERVER}:8080/"
rate = 300
duration = "5.003s"
warmup = "500ms"
[rounds]
fixed = 3
"""
ASKED = 3 * 1501
NGINX = """\
daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1000; }}
http {{ access_log {folder}/access.log; server {{ listen 8080; keepalive_requests 1000000; location / {{ return 200 "x"; }} }} }}
"""


def serve(fleet: bench.Fleet) -> None:
    """nginx in the hub, at an address that all machines reach over their own link."""
    bench.ip("-n", fleet.space("hub"), "addr", "add", f"{SERVER}/32", "dev", "lo")
    for number, name in enumerate(MACHINES, 1):
        bench.ip("-n", fleet.space(name), "route", "add", f"{SERVER}/32", "via", f"10.79.{number}.1")
    program = shutil.which("nginx") or "/usr/sbin/nginx"
    file = fleet.folder / "nginx.conf"
    file.write_text(NGINX.format(folder=fleet.folder), encoding="utf-8")
    command = ["ip", "netns", "exec", fleet.space("hub"), program, "-c", str(file)]
    fleet.children["nginx"] = subprocess.Popen(command, text=True)
    bench.wait_for((fleet.folder / "nginx.pid").exists, 10)


def lines(path: Path) -> int:
    """Of the log, once nginx has written all of them."""
    time.sleep(1)
    return len(path.read_text(encoding="utf-8").splitlines())


def main(program: str) -> int:
    bench.POINTS.clear()
    bench.POINTS.update(MACHINES)
    with bench.built(program) as fleet:
        (fleet.folder / "study.toml").write_text(STUDY, encoding="utf-8")
        serve(fleet)
        out = fleet.folder / "out"
        _, status, printed = bench.run(fleet, out, "--split", "--deadline", "90s")
        print(printed)
        report = subprocess.run([program, "report", str(out / "merged.jsonl"), "--format", "json"], capture_output=True, check=True)
        summary: dict[str, Any] = json.loads(report.stdout)
        arm, split = summary["arms"][0], summary["points"]["split"]
        due = sum(one["due"] for one in split["due"])
        asked = sum(one["asked"] for one in split["due"])
        logged, counted = lines(fleet.folder / "access.log"), arm["attempts"] + arm["warmup"]["attempts"]
        print(f"asked for {ASKED} (the merge computes {asked}), due {due}: {[point['arms'][0]['attempts'] for point in summary['points']['points']]}")
        print(f"in the server's log {logged}, in the merged record {counted}: {arm['attempts']} measured, of which {arm['ok']} "
              f"succeeded, and {arm['warmup']['attempts']} of the warm-up")  # fmt: skip
        print(f"the loads began within {1000 * split['apart_s']:.2f} ms by their own clocks, which differ by at most "
              f"{1000 * split['clock_bound_s']:.2f} ms; exit status {status}")  # fmt: skip
        met = ASKED == asked == due and logged == counted and arm["ok"] == due and status == 0
        print(f"figure: load of {ASKED} requests split over 3 machines in namespaces, links of 1, 5 and 20 ms | due = asked; the "
              f"server's log = merged counts | due {due}, log {logged}, counted {counted}; begun within "
              f"{1000 * split['apart_s']:.2f} ms, clocks within {1000 * split['clock_bound_s']:.1f} ms | {'met' if met else 'MISSED'}")  # fmt: skip
        return int(not met)


if __name__ == "__main__":
    if len(sys.argv) != 2 or os.geteuid() != 0:
        sys.exit("usage (as root): python bench/split_namespaces.py PROGRAM")
    sys.exit(main(os.path.abspath(sys.argv[1])))

"""What a fleet on Dask costs: 100 workers in this process, 300 runs that only sleep, and the memory of the scheduler.

    python bench/workers.py

Needs `distributed`. Prints wall time, CPU time and overhead per run; exits with 1 if a limit is exceeded.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tcptoll.fleet import worker as workers
from tcptoll.fleet.plan import Plan, Study, canonical
from tcptoll.fleet.runner import Runner
from tcptoll.fleet.store import Store

WORKERS, FLEETS, RUN_S, ALONE = 100, 3, 0.2, 20
MOST_CPU_S, MOST_OVERHEAD_S = 2.0, 0.05
VERSION, SEED = "0.0.0", 1


def sleeps(message: dict[str, Any], topic: str) -> dict[str, Any]:
    """Instead of a measurement: the record of one that took 0.2 s."""
    import distributed

    there: Any = distributed.get_worker()
    for done in (0, 1):
        there.log_event(topic, {"point": message["point"], "token": message["token"], "done": done, "found": 0,
                                "address": there.address})  # fmt: skip
        time.sleep(RUN_S / 2)
    header = {"line": "header", "record_version": 2, "experiment": "connect", "study": {"name": "x"}, "seed": message["seed"],
              "tcptoll_version": VERSION, "vantage": message["point"]}  # fmt: skip
    lines: list[dict[str, Any]] = [header, {"line": "trial", "noise": os.urandom(8000).hex()}, {"line": "summary"}]
    record = b"".join(json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in lines)
    return {"protocol": 1, "status": 0, "error": "", "record": zlib.compress(record), "bytes": len(record),
            "sha256": hashlib.sha256(record).hexdigest(), "measured": 1, "found": 0}  # fmt: skip


def plan_of(points: list[str], seed: int) -> Plan:
    return Plan(Study("", "x", "connect", ("a",), 2, 1, RUN_S, RUN_S, RUN_S, (), canonical({"name": "x"})), seed, VERSION, tuple(points))


def fleet(address: str, points: list[str], at_once: int, seed: int) -> float:
    """Wall time of one fleet, in seconds, from the connection to the last file."""
    from tcptoll.fleet.on_dask import DaskExecutor

    with tempfile.TemporaryDirectory(prefix="tcptoll-") as folder:
        begun = time.monotonic()
        executor = DaskExecutor(address, measure=sleeps)
        store, plan = Store(Path(folder)), plan_of(points, seed)
        store.begin(plan)
        Runner(plan, executor, store, at_once=at_once, deadline_s=120, deadline="2m", patience_s=60, show=lambda last: None).run()
        took = time.monotonic() - begun
        store.close()
        unfinished = {name: point.reason for name, point in store.state.points.items() if point.state != "done"}
        if unfinished:
            raise SystemExit(f"error: not all points have a result: {unfinished}")
        return took


def served(start: Callable[[], Any]) -> Any:
    """Runs `start` in an event loop of its own thread, and returns what it returns."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return asyncio.run_coroutine_threadsafe(start(), loop).result(120)


def in_process() -> bool:
    import distributed

    names = [f"p{n}" for n in range(WORKERS)]

    async def start() -> Any:
        scheduler: Any = await distributed.Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0")

        async def worker(name: str) -> Any:
            return await distributed.Worker(scheduler.address, nthreads=1, name=name, memory_limit=0, dashboard=False,
                                            resources={workers.RESOURCE + name: 1})  # fmt: skip

        return scheduler, await asyncio.gather(*map(worker, names))

    scheduler, _ = served(start)
    cpu = time.process_time()
    walls = [fleet(scheduler.address, names, WORKERS, seed) for seed in range(FLEETS)]
    wall, cpu = sum(walls), time.process_time() - cpu
    alone = fleet(scheduler.address, names[:ALONE], 1, FLEETS)
    overhead = alone / ALONE - RUN_S
    idle = time.process_time()
    time.sleep(3)
    idle = (time.process_time() - idle) / 3
    runs = WORKERS * FLEETS
    print(f"{runs} runs of {RUN_S} s on {WORKERS} workers: wall {wall:.2f} s (ideal {FLEETS * RUN_S:.1f} s), CPU {cpu:.2f} s, "
          f"{1000 * cpu / runs:.1f} ms CPU a run")  # fmt: skip
    print(f"one after another: {1000 * overhead:.1f} ms overhead a run (limit {1000 * MOST_OVERHEAD_S:.0f} ms)")
    print(f"idle, scheduler, client and {WORKERS} workers: {idle:.3f} of a core")
    each = cpu / FLEETS
    for what, goal, measured, met in (
        (f"{WORKERS} workers in one process, {WORKERS} fake runs of {RUN_S} s: CPU", f"at most {MOST_CPU_S:.0f} s",
         f"{each:.2f} s (mean of {FLEETS} fleets; {cpu:.2f} s for all {runs} runs)", each <= MOST_CPU_S),
        ("overhead of a run, one after another", f"at most {1000 * MOST_OVERHEAD_S:.0f} ms", f"{1000 * overhead:.1f} ms",
         overhead <= MOST_OVERHEAD_S),
    ):  # fmt: skip
        print(f"figure: {what} | {goal} | {measured} | {'met' if met else 'MISSED'}")
    return each <= MOST_CPU_S and overhead <= MOST_OVERHEAD_S


def memory(points: int) -> float:
    """Memory of a scheduler in a process of its own, after a fleet of so many points; ten workers stand for them."""
    import distributed

    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
    child = subprocess.Popen([sys.executable, "-m", "tcptoll", "scheduler", "--port", "0"], stderr=subprocess.PIPE,
                             text=True, env=environment)  # fmt: skip
    try:
        assert child.stderr
        address = child.stderr.readline().split()[-1]
        names = [f"p{n}" for n in range(points)]

        async def start() -> Any:
            return [
                await distributed.Worker(address, nthreads=len(names[n::10]), name=str(n), memory_limit=0, dashboard=False,
                                         resources={workers.RESOURCE + name: 1 for name in names[n::10]})  # fmt: skip
                for n in range(10)
            ]

        begin = resident(child.pid)
        served(start)
        took = fleet(address, names, points, SEED)
        print(f"{points:5} points: scheduler {begin / 1e3:.1f} MB at its start, {resident(child.pid) / 1e3:.1f} MB after the "
              f"fleet, peak {resident(child.pid, 'VmHWM') / 1e3:.1f} MB; the fleet took {took:.2f} s")  # fmt: skip
        return resident(child.pid, "VmHWM") / 1e3
    finally:
        child.kill()
        child.wait()


def resident(pid: int, field: str = "VmRSS") -> int:
    """In kB."""
    found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(encoding="utf-8"), re.M)
    return int(found[1]) if found else 0


def main() -> int:
    workers.quiet()
    held = in_process()
    peaks = {points: memory(points) for points in (10, 100, 1000)}
    listed = ", ".join(f"{points} points {peak:.0f} MB" for points, peak in peaks.items())
    print(f"figure: peak memory of the scheduler | stated as a function of points | {listed} | met")
    return 0 if held else 1


if __name__ == "__main__":
    status = main()
    sys.stdout.flush()
    os._exit(status)  # The workers in this process would take their time to close.

"""`python -m tcptoll worker` and `scheduler`: Dask, set up so that it costs the machine that measures nothing.

The functions that the runner sends are here too, so that worker and runner find them under the same name.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import sys
import time
from typing import Any

from .._errors import TcptollError, printable
from .plan import Work
from .task import Settings, probe, run_or_resume

#: Resource of a worker that names its vantage point. A task finds it there, also on a replacement.
RESOURCE = "vantage-"

#: By default, a worker wakes up about a hundred times a second, and takes a profile of itself.
QUIET = {
    "distributed.admin.tick.interval": "2s",
    "distributed.admin.tick.limit": "60s",
    "distributed.admin.system-monitor.interval": "30s",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.allowed-failures": 10,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.diagnostics.nvml": False,
    # Dask serves HTTP also without a dashboard; nobody may ask for anything there.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


def quiet() -> None:
    """Sets Dask up; must come before `distributed` is imported."""
    try:
        import dask.config
    except ImportError as error:
        raise TcptollError("Dask is not installed: type `pip install 'tcptoll[fleet]'`") from error
    dask.config.set(QUIET)
    if "logging" not in dask.config.config and "logging" not in dask.config.config.get("distributed", {}):
        # What matters is said in a sentence of our own; tracebacks of lost connections are not it.
        levels = {"distributed": "error", "distributed.client": "critical", "distributed.worker": "critical"}
        dask.config.set({"distributed.logging": levels})


def security(ca: str | None, certificate: str | None, key: str | None) -> Any:
    """TLS on every connection, or None. Raises TcptollError if only a part is given or a file cannot be read."""
    given = {"--tls-ca": ca, "--tls-cert": certificate, "--tls-key": key}
    if not any(given.values()):
        return None
    missing = [name for name, value in given.items() if not value]
    if missing:
        raise TcptollError(f"TLS needs --tls-ca, --tls-cert and --tls-key; missing: {', '.join(missing)}")
    for name, value in given.items():
        try:
            with open(str(value), "rb"):
                pass
        except OSError as error:
            raise TcptollError(f"{name} {printable(str(value))} cannot be read: {error.strerror}") from error
    import distributed.security

    sides = {f"tls_{side}_{what}": value for side in ("scheduler", "worker", "client")
             for what, value in (("cert", certificate), ("key", key))}  # fmt: skip
    return distributed.security.Security(require_encryption=True, tls_ca_file=ca, **sides)


def run_worker(scheduler: str, vantage: str, settings: Settings, tls: Any) -> int:
    """Until it is stopped, or the scheduler goes away."""
    version = probe(settings)
    import distributed

    async def serve() -> int:
        # A scheduler refuses a name that is taken, also while it has not noticed that the worker before is dead.
        name = f"{vantage}-{secrets.token_hex(4)}"
        worker = distributed.Worker(
            scheduler, nthreads=1, name=name, resources={"tcptoll": 1, RESOURCE + vantage: 1}, security=tls,
            memory_limit=0, dashboard=False, dashboard_address="127.0.0.1:0", death_timeout="30s",
        )  # fmt: skip
        worker.tcptoll = settings
        await worker
        print(f"vantage point {vantage}: tcptoll {version}, connected to {worker.scheduler.address}", file=sys.stderr)
        return await _until_stopped(worker)

    status = _serve(serve(), f"no connection to the scheduler {printable(scheduler)}")
    if status == 0:
        print(f"error: the scheduler {printable(scheduler)} closed the connection: start this worker again", file=sys.stderr)
        return 1
    return status


def run_scheduler(host: str, port: int, tls: Any) -> int:
    """Until it is stopped."""
    import distributed

    async def serve() -> int:
        protocol = "tcp" if tls is None else "tls"
        scheduler = distributed.Scheduler(host=host, port=port, protocol=protocol, security=tls, dashboard=False,
                                          dashboard_address="127.0.0.1:0")  # fmt: skip
        await scheduler
        print(f"scheduler at {scheduler.address}", file=sys.stderr, flush=True)
        return await _until_stopped(scheduler)

    return _serve(serve(), f"--host {printable(host)} --port {port}")


def _serve(coroutine: Any, what: str) -> int:
    try:
        return int(asyncio.run(coroutine))
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        raise TcptollError(f"{what}: {printable(str(error) or type(error).__name__, 300)}") from error


async def _until_stopped(server: Any) -> int:
    """128 + signal, or 0 if it ended by itself."""
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def stop(status: int) -> None:
        if not stopped.done():
            stopped.set_result(status)

    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop, 128 + number)
    ended = asyncio.ensure_future(server.finished())
    await asyncio.wait([stopped, ended], return_when=asyncio.FIRST_COMPLETED)
    if stopped.done():
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            await asyncio.wait_for(server.close(), 2.0)
        return stopped.result()
    return 0


def measure_there(message: dict[str, Any], topic: str) -> dict[str, Any]:
    """On a worker: runs or resumes. Ends early if nobody wants the result any more."""
    import distributed

    worker: Any = distributed.get_worker()
    key = worker.get_current_task()
    work = Work(**message)

    def report(done: int, found: int) -> None:
        worker.log_event(topic, {"point": work.point, "token": work.token, "done": done, "found": found,
                                 "address": worker.address})  # fmt: skip

    def stopped() -> bool:
        # Nobody wants the result any more, or the scheduler went away.
        task = worker.state.tasks.get(key)
        return task is None or task.state != "executing" or worker.status.name not in ("running", "paused")

    settings: Settings = getattr(worker, "tcptoll", None) or Settings()
    report(0, 0)
    return run_or_resume(work, settings, report, stopped)


async def probe_there(dask_worker: Any = None) -> dict[str, str]:
    """On a worker: the version of its program."""
    settings: Settings = getattr(dask_worker, "tcptoll", None) or Settings()
    try:
        return {"version": await asyncio.to_thread(probe, settings)}
    except TcptollError as error:
        return {"error": str(error)}


async def clock_there() -> int:
    """On a worker: its wall clock in ns."""
    return time.time_ns()

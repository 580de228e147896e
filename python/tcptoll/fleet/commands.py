"""What `fleet run`, `fleet status` and `fleet collect` do."""

from __future__ import annotations

import argparse
import math
import secrets
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .. import _binary
from .._errors import TcptollError, printable
from .plan import NAME_RULE, Clock, Executor, Plan, PointError, Split, Study, is_name
from .runner import Runner
from .screen import Screen, table
from .store import Point, Store
from .study import read
from .task import Settings, version

#: Points that are asked for their version at the same time.
_ASKERS = 16
#: From the plan to the first trial of a shared load, at least: all points must have begun by then.
_READY_S = 5.0


def run(given: argparse.Namespace) -> int:
    """Measures at all points. Status 0: all have a result; 1: some; 2: none; 130: interrupted."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return _planned(given)
    finally:
        signal.signal(signal.SIGTERM, before)


def _planned(given: argparse.Namespace) -> int:
    study = read(given.study)
    ours = version(_binary.find())
    store = Store(Path(given.out))
    executor = _executor(given)
    try:
        names, hostile = _names(executor, given)
        absent = _probed(executor, [name for name in names if executor.present(name)], ours)
        seed = given.seed if given.seed is not None else _seed(store)
        split = _split(executor, names, absent, study, given) if given.split else None
        plan = Plan(study, seed, ours, tuple(names), split)
        store.begin(plan)
    except BaseException:
        executor.close(1.0)
        raise
    try:
        return _run(given, plan, executor, store, absent, hostile)
    finally:
        store.close()


def _run(
    given: argparse.Namespace, plan: Plan, executor: Executor, store: Store, absent: dict[str, str], hostile: list[str]
) -> int:
    at_once = _at_once(given, plan)
    _warn(given, plan, at_once)
    state = store.state
    state.deadline_s = given.deadline.seconds
    state.clock_bound_s = plan.split.bound_s if plan.split else None
    for name in hostile:
        state.points[printable(name, 80)] = Point("refused", NAME_RULE)
    screen = Screen(state, sys.stderr, given.quiet)
    runner = Runner(
        plan, executor, store, at_once=at_once, deadline_s=given.deadline.seconds, deadline=given.deadline.text,
        patience_s=3 * plan.study.most_s + 60, show=screen.show, absent=absent,
    )  # fmt: skip
    try:
        runner.run()
    except KeyboardInterrupt:
        print(f"interrupted: `python -m tcptoll fleet collect {given.out}` merges the points that are done; {_goes_on(store)}",
              file=sys.stderr)  # fmt: skip
        return 130
    return _merge(store)


def status(given: argparse.Namespace) -> int:
    """Prints the table."""
    # Before the state is read: a fleet that ends meanwhile has its end there.
    in_use = Store(Path(given.folder)).in_use()
    store = _stored(given)
    width = shutil.get_terminal_size((120, 24)).columns if sys.stdout.isatty() else 10_000
    state = store.state
    ended = f"ended {state.ended}" if state.ended else "not ended"
    if not state.ended and in_use is None:
        ended = "not ended, or stopped: fleet.lock cannot be read"
    elif not state.ended and not in_use:
        ended = f"stopped before its end: {_goes_on(store)}"
        for point in state.points.values():
            if point.state == "running":
                point.state, point.reason = "waiting", "the fleet was stopped while it measured"
    shown = printable(f"seed {state.seed}, tcptoll {state.version}, begun {state.begun}, {ended}", 300)
    print("\n".join([*table(state, width, len(state.points) + 1), shown]))
    return 0


def _goes_on(store: Store) -> str:
    if store.state.clock_bound_s is not None:
        return "the shares of a load must run together, so run all of them again with another --out"
    return "the same `fleet run` command goes on"


def collect(given: argparse.Namespace) -> int:
    """Merges the records that are there, also of a fleet that was interrupted."""
    return _merge(_stored(given))


def _stored(given: argparse.Namespace) -> Store:
    store = Store(Path(given.folder))
    if not store.read():
        raise TcptollError(f"{printable(given.folder)} holds no fleet: it has no fleet.json; name the --out of `fleet run`")
    return store


def _executor(given: argparse.Namespace) -> Executor:
    if given.local is not None:
        from .local import LocalExecutor

        return LocalExecutor(given.local, Settings(store=given.store))
    if given.hosts is not None:
        from .hosts import hosts
        from .over_ssh import SshExecutor

        return SshExecutor(*hosts(Path(given.hosts)))
    from .worker import quiet, security

    quiet()
    from .on_dask import DaskExecutor

    return DaskExecutor(given.scheduler, security(given.tls_ca, given.tls_cert, given.tls_key))


def _names(executor: Executor, given: argparse.Namespace) -> tuple[list[str], list[str]]:
    """The points that take part, and the names that are refused."""
    there = list(executor.points())
    hostile = [name for name in there if not is_name(name)]
    for name in hostile:
        print(f"warning: a worker has the name {printable(repr(name), 120)}, which is refused: {NAME_RULE}", file=sys.stderr)
    there = [name for name in there if is_name(name)]
    names = sorted(there)
    if given.points is not None:
        unknown = [name for name in given.points if name not in there and name not in (given.expect or [])]
        if unknown:
            raise TcptollError(f"--points {','.join(unknown)}: no such vantage point; there are: {_list(names)}. "
                               "To wait for a point, name it with --expect")  # fmt: skip
        names = list(given.points)
    names = list(dict.fromkeys([*names, *(given.expect or [])]))
    if not names:
        raise TcptollError("there is no vantage point: start workers with `python -m tcptoll worker`, or wait for them "
                           "with --expect NAME,…")  # fmt: skip
    return names, hostile


def _probed(executor: Executor, names: list[str], ours: str) -> dict[str, str]:
    """The points that did not answer, and why. Raises TcptollError if a point has another version of the program."""

    def ask(name: str) -> tuple[str, str]:
        try:
            return executor.probe(name), ""
        except TcptollError as error:
            return "", str(error)

    for name in names:
        if (workers := executor.workers(name)) > 1:
            print(f"warning: {workers} workers have the name {name}; any of them measures for it: give every machine a "
                  "name of its own", file=sys.stderr)  # fmt: skip
    with ThreadPoolExecutor(_ASKERS) as pool:
        answers = dict(zip(names, pool.map(ask, names), strict=True))
    others = {name: found for name, (found, _) in answers.items() if found and found != ours}
    if others:
        listed = "; ".join(f"{name}: {found or why}" for name, (found, why) in answers.items())
        raise TcptollError(
            f"nothing was measured, because the points have different versions of tcptoll. Here: {ours}; {listed}. "
            f"Install {ours} on {_list(list(others))}, or leave points out with --points"
        )
    return {name: why for name, (found, why) in answers.items() if not found}


def _split(
    executor: Executor, names: list[str], absent: dict[str, str], study: Study, given: argparse.Namespace
) -> Split:
    """Clocks of all points and a common start; a shared load needs every point from the beginning."""
    if study.not_split:
        raise TcptollError(f"--split needs a study of http with a rate and a fixed number of rounds: {study.not_split}")
    away = absent | {name: "no worker" for name in names if not executor.present(name)}
    if away:
        listed = "; ".join(f"{name}: {why}" for name, why in away.items())
        raise TcptollError(f"--split needs every point from the beginning, but: {listed}")
    clocks: dict[str, Clock] = {}
    for name in names:
        try:
            clocks[name] = executor.clock(name)
        except PointError as error:
            raise TcptollError(f"--split: {name}: {error}") from error
    trial_s = study.round_s / max(1, len(study.arms))
    every = given.every.text if given.every else f"{math.ceil(1.5 * trial_s + 1)}s"
    return Split(time.time_ns() + round((_READY_S + 0.1 * len(names)) * 1e9), every, clocks)


def _seed(store: Store) -> int:
    return store.state.seed if store.read() else secrets.randbelow(1 << 53)


def _at_once(given: argparse.Namespace, plan: Plan) -> int:
    """Points that measure the same server, or that share this machine, would measure each other."""
    if plan.split is not None:
        return len(plan.points)
    if given.at_once is not None:
        return int(given.at_once)
    return 1 if plan.study.targets or given.local is not None else len(plan.points)


def _warn(given: argparse.Namespace, plan: Plan, at_once: int) -> None:
    turns = math.ceil(len(plan.points) / at_once)
    needed = turns * plan.study.least_s
    if needed > given.deadline.seconds:
        print(f"warning: --deadline {given.deadline.text} is too short: {len(plan.points)} points, {at_once} at a time, "
              f"need at least {needed:.0f} s", file=sys.stderr)  # fmt: skip


def _list(names: list[str]) -> str:
    shown = ", ".join(names[:20]) or "none"
    return shown + (f" and {len(names) - 20} more" if len(names) > 20 else "")


def _reasons(missing: list[tuple[str, str]]) -> str:
    """Each reason once, with its points."""
    points: dict[str, list[str]] = {}
    for name, why in missing:
        points.setdefault(why, []).append(printable(name, 80))
    return "; ".join(f"{_list(names)}: {why}" for why, names in points.items())


def _merge(store: Store) -> int:
    """Lets the program conclude, and returns the exit status."""
    state, command = store.state, []
    missing = []
    for name, point in sorted(state.points.items()):
        path = store.path_of(name) if point.state != "refused" else None
        if point.state == "done" and path is not None and path.exists():
            command.append(str(path.absolute()))
            continue
        why = point.reason if point.state not in ("waiting", "running", "done") else "the fleet has not finished"
        missing.append((name, "its record was deleted" if point.state == "done" else why))
    if not command:
        raise TcptollError(f"no point has a result: {printable(_reasons(missing), 4000)}")
    arguments = ["merge", *command, f"--out={(store.folder / 'merged.jsonl').absolute()}"]
    # A name that is refused is not one that the program takes; the worker's own warning has named it.
    arguments += [f"--missing={name}={printable(why, 300)}" for name, why in missing if is_name(name)]
    if state.clock_bound_s is not None:
        arguments.append(f"--clock-bound={max(1, math.ceil(state.clock_bound_s * 1e6))}us")
    sys.stdout.flush()
    done = subprocess.run([_binary.find(), *arguments], stdin=subprocess.DEVNULL, check=False)
    if done.returncode not in (0, 1):
        print(f"error: the points were not merged; their records are in {store.folder / 'points'}", file=sys.stderr)
    return done.returncode or int(bool(missing))

"""The command lines of `fleet`, `worker` and `scheduler`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from .._errors import printable
from . import commands
from .plan import NAME_RULE, is_name, seconds

_RUN_EXAMPLES = """\
examples:
  python -m tcptoll fleet run study.toml --local 2 --out trial/
  python -m tcptoll fleet run study.toml --hosts hosts.toml --deadline 1h
  python -m tcptoll fleet run study.toml --scheduler tcp://10.0.0.1:8786 --expect fra1,nyc1

hosts.toml:
  [[point]]
  name = "fra1"
  ssh = "user@fra1"
  binary = "tcptoll"              # optional: its path there

exit status: 0 all points have a result, 1 some, 2 none or wrong input, 130 interrupted.
The same command goes on with a fleet that did not finish: a point that is done is not measured again. A load that
was split (--split) cannot go on: run it again with another --out.
"""
_WORKER_EXAMPLES = """\
example:
  python -m tcptoll worker tcp://10.0.0.1:8786 --vantage fra1

A worker runs what the scheduler sends it. Use TLS, or a private network.
It ends when the scheduler goes away; let your service manager start it again.
"""


@dataclass(frozen=True)
class Duration:
    """A time, and how it was typed."""

    text: str
    seconds: float


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {printable(message.removeprefix('argument '), 1000)}\n\nFor more information, try: {self.prog} --help\n")


def fleet(arguments: Sequence[str]) -> int:
    """`python -m tcptoll fleet`."""
    parser = _Parser(prog="python -m tcptoll fleet", description="Run one study from several vantage points.")
    actions = parser.add_subparsers(dest="action", required=True, metavar="COMMAND", parser_class=_Parser)
    run = _add(actions, "run", "measure at all points, collect the records and merge them", _RUN_EXAMPLES)
    run.add_argument("study", metavar="STUDY", help="study file, or the name of a built-in study")
    where = run.add_mutually_exclusive_group(required=True)
    where.add_argument("--scheduler", metavar="ADDRESS", help="Dask scheduler of the workers, like tcp://host:8786 (tls:// with TLS)")
    where.add_argument("--hosts", metavar="FILE", help="hosts over ssh, from a TOML file")
    where.add_argument("--local", metavar="N", type=_number(1, 64), help="N points on this machine, to try a study out")
    run.add_argument("--deadline", metavar="TIME", type=_time, default=Duration("30m", 1800.0),
                     help="points without a result by then are missing [default: 30m]")  # fmt: skip
    run.add_argument("--out", metavar="FOLDER", default="fleet", help="folder for records and state [default: fleet]")
    run.add_argument("--at-once", metavar="N", type=_number(1, 100_000),
                     help="points that measure concurrently [default: 1 if the study measures a server of yours, or with "
                     "--local; otherwise all]")  # fmt: skip
    run.add_argument("--points", metavar="A,B", type=_names, help="only these points")
    run.add_argument("--expect", metavar="A,B", type=_names, help="points that take part although their workers are not there yet")
    run.add_argument("--seed", metavar="N", type=_number(0, (1 << 63) - 1), help="seed of random numbers [default: that of the folder, otherwise new]")
    run.add_argument("--split", action="store_true", help="share one load among the points: each sends a part of every trial")
    run.add_argument("--every", metavar="TIME", type=_time, help="with --split: time from the beginning of a trial to the next")
    run.add_argument("--store", metavar="FOLDER", help="with --local: folder in which the points keep their records")
    run.add_argument("-q", "--quiet", action="store_true", help="print no progress on stderr")
    _add_tls(run)
    status = _add(actions, "status", "print the state of all points")
    collect = _add(actions, "collect", "merge the records that are there again")
    for one in (status, collect):
        one.add_argument("folder", metavar="DIR", help="the --out of `fleet run`")
    given = parser.parse_args(arguments)
    if given.action == "run":
        _consistent(run, given)
        return commands.run(given)
    return commands.status(given) if given.action == "status" else commands.collect(given)


def worker(arguments: Sequence[str]) -> int:
    """`python -m tcptoll worker`."""
    parser = _parser("worker", "Be a vantage point: wait for studies from a scheduler, and measure.", _WORKER_EXAMPLES)
    parser.add_argument("scheduler", metavar="ADDRESS", help="the scheduler, like tcp://host:8786 (tls:// with TLS)")
    parser.add_argument("--vantage", metavar="NAME", required=True, type=_name, help="name of this vantage point")
    parser.add_argument("--store", metavar="DIR", help="folder for records [default: $XDG_DATA_HOME/tcptoll/fleet]")
    parser.add_argument("--binary", metavar="PATH", help="the program tcptoll [default: that of this package]")
    _add_tls(parser)
    given = parser.parse_args(arguments)
    from . import worker as workers
    from .task import Settings

    workers.quiet()
    tls = workers.security(given.tls_ca, given.tls_cert, given.tls_key)
    return workers.run_worker(given.scheduler, given.vantage, Settings(given.store, given.binary), tls)


def scheduler(arguments: Sequence[str]) -> int:
    """`python -m tcptoll scheduler`."""
    parser = _parser("scheduler", "Run a Dask scheduler for a fleet, without a dashboard.", "")
    parser.add_argument("--host", metavar="ADDRESS", default="127.0.0.1", help="address to listen on [default: 127.0.0.1]")
    parser.add_argument("--port", metavar="PORT", type=_number(0, 65535), default=8786, help="[default: 8786]")
    _add_tls(parser)
    given = parser.parse_args(arguments)
    from . import worker as workers

    workers.quiet()
    return workers.run_scheduler(given.host, given.port, workers.security(given.tls_ca, given.tls_cert, given.tls_key))


def _parser(name: str, what: str, examples: str) -> _Parser:
    return _Parser(prog=f"python -m tcptoll {name}", description=what, epilog=examples,
                   formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip


def _add(actions: argparse._SubParsersAction[_Parser], name: str, what: str, examples: str = "") -> _Parser:
    return actions.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".", epilog=examples,
                              formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip


def _add_tls(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("TLS (all three, on scheduler, workers and fleet)")
    group.add_argument("--tls-ca", metavar="FILE", help="certificate of the authority that signed the others, PEM")
    group.add_argument("--tls-cert", metavar="FILE", help="certificate of this program")
    group.add_argument("--tls-key", metavar="FILE", help="its private key")


def _consistent(parser: _Parser, given: argparse.Namespace) -> None:
    if given.every and not given.split:
        parser.error(f"--every {given.every.text}: it needs --split")
    if given.split and given.at_once is not None:
        parser.error(f"--at-once {given.at_once}: with --split all points measure concurrently; leave it out")
    if given.expect and given.scheduler is None:
        parser.error(f"--expect {','.join(given.expect)}: only workers of a --scheduler can come later")
    if given.scheduler is None and (given.tls_ca or given.tls_cert or given.tls_key):
        parser.error("--tls-ca, --tls-cert, --tls-key: they need --scheduler")
    if given.store and given.local is None:
        parser.error(f"--store {given.store}: it needs --local")
    if given.scheduler is not None and not given.scheduler.startswith(("tcp://", "tls://")):
        parser.error(f"--scheduler {given.scheduler}: an address looks like tcp://host:8786")


def _number(least: int, most: int) -> _Number:
    return _Number(least, most)


@dataclass(frozen=True)
class _Number:
    least: int
    most: int

    def __call__(self, text: str) -> int:
        if not (text.isascii() and text.isdigit()) or len(text) > 20 or not self.least <= int(text) <= self.most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {self.least} to {self.most}")
        return int(text)


def _time(text: str) -> Duration:
    try:
        return Duration(text, seconds(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error


def _name(text: str) -> str:
    if not is_name(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a name of a vantage point: {NAME_RULE}")
    return text


def _names(text: str) -> list[str]:
    return list(dict.fromkeys(_name(part) for part in text.split(",")))

"""`python -m tcptoll COMMAND`: what Python adds to the program `tcptoll`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from . import _binary
from ._errors import TcptollError


def _binary_path(arguments: Sequence[str]) -> int:
    if arguments:
        print("error: binary takes no arguments", file=sys.stderr)
        return 2
    print(_binary.find())
    return 0


def _fleet(arguments: Sequence[str]) -> int:
    from .fleet.arguments import fleet

    return fleet(arguments)


def _worker(arguments: Sequence[str]) -> int:
    from .fleet.arguments import worker

    return worker(arguments)


def _scheduler(arguments: Sequence[str]) -> int:
    from .fleet.arguments import scheduler

    return scheduler(arguments)


#: Each command, what it does in a line, and its function, which returns the exit status.
COMMANDS: dict[str, tuple[str, Callable[[Sequence[str]], int]]] = {
    "binary": ("print the path of the program that this package runs", _binary_path),
    "fleet": ("run one study from several vantage points, and merge the results", _fleet),
    "worker": ("be a vantage point of a fleet", _worker),
    "scheduler": ("connect the workers of a fleet", _scheduler),
}


def usage() -> str:
    """What is offered."""
    lines = [f"  {name:<10} {what}" for name, (what, _) in COMMANDS.items()]
    return "\n".join(
        [
            "Read records of tcptoll in Python: `import tcptoll`, then tcptoll.Record, Records and run.",
            "",
            "Usage: python -m tcptoll COMMAND",
            "",
            "Commands:",
            *lines,
            "",
            "To measure from a shell, type `tcptoll --help`.",
        ]
    )


def main(arguments: Sequence[str]) -> int:
    """Runs a command; the exit status is 2 if there is none of that name."""
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if arguments[0] in ("-V", "--version"):
        import tcptoll

        print(f"tcptoll {tcptoll.__version__}")
        return 0
    name, *rest = arguments
    if name not in COMMANDS:
        print(f"error: there is no command {name!r}\n\n{usage()}", file=sys.stderr)
        return 2
    try:
        return COMMANDS[name][1](rest)
    except TcptollError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

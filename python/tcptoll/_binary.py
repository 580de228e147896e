"""The program `tcptoll`: where it is, and what it says of a record.

Statistics are the program's alone. Whatever is concluded from a record (means over rounds, intervals,
verdicts, warnings) is asked of it, so that Python and the command line never disagree.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ._errors import BinaryNotFoundError, TcptollError, printable

#: Environment variable that names the program.
VARIABLE = "TCPTOLL_BINARY"


def find() -> str:
    """Path of the program: TCPTOLL_BINARY, else beside this Python, else in PATH."""
    named = os.environ.get(VARIABLE)
    if named:
        found = shutil.which(named)
        if found is None:
            raise BinaryNotFoundError(f"{VARIABLE}={printable(named)} is not a program that can be run")
        return found
    beside = Path(sys.executable).with_name("tcptoll")
    found = shutil.which(str(beside)) or shutil.which("tcptoll")
    if found is None:
        raise BinaryNotFoundError(
            f"the program tcptoll is neither beside {sys.executable} nor in PATH: type `pip install tcptoll`, "
            f"or name it in the environment variable {VARIABLE}"
        )
    return found


def answer(arguments: Sequence[str]) -> str:
    """What the program prints. Raises TcptollError with its own sentence if it fails."""
    program = find()
    try:
        done = subprocess.run(
            [program, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, encoding="utf-8",
            errors="replace", check=False,
        )  # fmt: skip
    except OSError as error:
        raise TcptollError(f"{program} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        raise TcptollError(sentence(done.stderr, done.returncode), done.returncode)
    return done.stdout


def sentence(stderr: str, status: int) -> str:
    """The error among what the program wrote on stderr, on one line."""
    _, found, error = stderr.replace("\r\n", "\n").rpartition("error: ")
    words = " ".join(error.split("\n\n")[0].split()) if found else ""
    return printable(words, 2000) or f"tcptoll ended with exit status {status} and did not say why"


def summary(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the program concludes from a record: the object of `tcptoll report --format json`."""
    concluded = json.loads(answer(["report", "--format", "json", os.path.abspath(path)]))
    if not isinstance(concluded, dict):
        raise TcptollError("the program did not print a summary: is it of the same version as this package?")
    return concluded


def page(paths: Sequence[str | os.PathLike[str]]) -> str:
    """The HTML report of one record or several."""
    with tempfile.TemporaryDirectory(prefix="tcptoll-") as folder:
        file = Path(folder, "report.html")
        answer(["report", *map(os.path.abspath, paths), "--html", str(file)])
        return file.read_text(encoding="utf-8")


def experiments() -> list[dict[str, Any]]:
    """All experiments with their options: `tcptoll schema experiments`."""
    listed = json.loads(answer(["schema", "experiments"]))
    return [one for one in listed if isinstance(one, dict)]

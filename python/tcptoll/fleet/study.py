"""Reads a study and has the program check it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from .. import _binary
from .._errors import TcptollError, printable
from .plan import MOST_STUDY_BYTES, Study, canonical


def read(named: str) -> Study:
    """A study file, or a built-in study. Raises TcptollError with the program's sentence if it is not valid."""
    path = Path(named)
    if path.exists() or "/" in named or named.endswith(".toml"):
        text = _text(path)
        checked = _checked(named)
    else:
        text = _binary.answer(["study", "show", named])
        with tempfile.TemporaryDirectory(prefix="tcptoll-") as folder:
            file = Path(folder, "study.toml")
            file.write_text(text, encoding="utf-8")
            checked = _checked(str(file))
    return _study(text, checked, path.stem)


def _text(path: Path) -> str:
    shown = f"study {printable(str(path))}"
    try:
        with path.open("rb") as file:
            content = file.read(MOST_STUDY_BYTES + 1)
    except OSError as error:
        raise TcptollError(f"{shown} cannot be read: {error.strerror}") from error
    if len(content) > MOST_STUDY_BYTES:
        raise TcptollError(f"{shown} has more than {MOST_STUDY_BYTES >> 20} MiB, the limit of a study")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TcptollError(f"{shown} is not UTF-8: byte {error.start} is not valid") from error


def _checked(path: str) -> Any:
    try:
        return json.loads(_binary.answer(["study", "check", path, "--format", "json"]))
    except ValueError as error:
        raise _different() from error


def _study(text: str, checked: Any, name: str) -> Study:
    try:
        rounds = checked.get("rounds") or {}
        return Study(
            text=text,
            name=_of(str, checked["study"].get("name") or name),
            experiment=_of(str, checked["experiment"]),
            arms=tuple(_of(str, arm) for arm in checked["arms"]),
            record_version=_of(int, checked["record_version"]),
            most_rounds=_of(int, rounds.get("most", 1)),
            round_s=float(checked.get("round_s") or 0.0),
            least_s=float(checked.get("least_s") or 0.0),
            most_s=float(checked.get("most_s") or 0.0),
            targets=tuple(_of(str, target) for target in checked["targets"]),
            document=canonical(_of(dict, checked["study"])),
            not_split=str(checked.get("not_split") or ""),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _different() from error


def _of(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError
    return value


def _different() -> TcptollError:
    return TcptollError("`tcptoll study check --format json` printed something else: is it of the same version as this package?")

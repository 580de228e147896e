"""The hosts file: the vantage points that are reached over ssh."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._errors import TcptollError, printable
from .plan import NAME_RULE, is_name


@dataclass(frozen=True)
class Host:
    """A vantage point in the hosts file."""

    name: str
    ssh: str
    binary: str = "tcptoll"


def hosts(path: Path) -> tuple[list[Host], str]:
    """The points in a hosts file, and its ssh command (empty: the default). Raises TcptollError."""
    shown = f"--hosts {printable(str(path))}"
    content = _toml(path, shown)
    unknown = set(content) - {"point", "ssh_command"}
    points = content.get("point")
    command = content.get("ssh_command", "")
    if unknown or not isinstance(command, str) or not isinstance(points, list) or not points:
        raise TcptollError(f'{shown}: it has [[point]] tables with name and ssh, and optionally ssh_command = "ssh …"')
    found = [_host(entry, shown) for entry in points]
    names = [host.name for host in found]
    for name in names:
        if names.count(name) > 1:
            raise TcptollError(f"{shown}: two points have the name {name}: give each a name of its own")
    return found, command


def _toml(path: Path, shown: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib

        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise TcptollError(f"{shown} cannot be read: {error.strerror}") from error
        except ValueError as error:
            raise TcptollError(f"{shown}: {printable(str(error))}") from error
    else:
        raise TcptollError(f"{shown}: reading TOML needs Python 3.11 or later, and this is {sys.version.split()[0]}")


def _host(entry: Any, shown: str) -> Host:
    if not isinstance(entry, dict) or not set(entry) <= {"name", "ssh", "binary"}:
        raise TcptollError(f"{shown}: a [[point]] has name, ssh and optionally binary")
    if not all(isinstance(value, str) and value for value in entry.values()) or not {"name", "ssh"} <= set(entry):
        raise TcptollError(f'{shown}: a [[point]] needs name = "…" and ssh = "user@host", both as text')
    if not is_name(entry["name"]):
        raise TcptollError(f"{shown}: {printable(repr(entry['name']), 80)} is not a name of a point: {NAME_RULE}")
    if entry["ssh"].startswith("-"):
        raise TcptollError(f"{shown}: ssh = {printable(repr(entry['ssh']), 80)} would be an option of ssh: name a host")
    return Host(**entry)

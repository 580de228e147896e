"""Keyword arguments of `run` become the program's options, checked against its own list."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from ._errors import TcptollError

Level: TypeAlias = "str | int | float | bool | os.PathLike[str]"
Value: TypeAlias = "Level | Sequence[Level] | None"

#: Options that every experiment has, and `tcptoll schema experiments` does not list; a list of values is
#: a repeated option.
OF_EVERY_RUN = (
    "seed", "link-tolerance", "rounds", "target", "max-rounds", "max-time", "margin", "allow-errors",
    "fail-if", "html", "pcap", "vantage",
)  # fmt: skip


def command_line(
    experiments: Iterable[Mapping[str, Any]], experiment: str, servers: Sequence[str], options: Mapping[str, Value]
) -> list[str]:
    """The arguments of a run, without the program. Raises TcptollError with what is wrong and what is near."""
    by_name = {str(one["name"]): one for one in experiments}
    if experiment not in by_name:
        raise TcptollError(f"there is no experiment {experiment!r}{_near(experiment, by_name)}")
    known = _known(by_name[experiment])
    arguments = [experiment]
    positional = list(servers)
    for keyword, value in options.items():
        name = keyword.replace("_", "-")
        if name not in known:
            raise TcptollError(f"{experiment} has no option {keyword!r}{_near(name, known)}")
        if value is None:
            continue
        if known[name]["levels"] == "arguments":
            positional += _texts(value, known[name])
        else:
            arguments += _option(name, value, known[name])
    if positional:
        if by_name[experiment].get("target") is None:
            raise TcptollError(f"{experiment} measures in the lab only, so it takes no server: {positional[0]!r}")
        arguments += ["--", *positional]
    return arguments


def _known(experiment: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """Options by each of their names."""
    known: dict[str, Mapping[str, Any]] = {name: {"levels": "together", "value": ""} for name in OF_EVERY_RUN}
    for option in experiment["options"]:
        for name in (option["name"], *option.get("aliases", ())):
            known.setdefault(name, option)
    return known


def _option(name: str, value: Value, option: Mapping[str, Any]) -> list[str]:
    if option["levels"] == "flag":
        if not isinstance(value, bool):
            raise TcptollError(f"{name}={value!r}: write True or False")
        return [f"--{name}"] if value else []
    texts = _texts(value, option)
    if not texts:
        raise TcptollError(f"{name}=[]: write one level at least")
    # A level with a comma, like a link of several settings, is not several levels.
    if option["levels"] == "together" or any("," in text for text in texts):
        return [f"--{name}={text}" for text in texts]
    if len(texts) > 1 and option["levels"] != "each" and "…" not in option.get("value", ""):
        raise TcptollError(f"{name} takes one value, and {len(texts)} are given")
    return [f"--{name}={','.join(texts)}"]


def _texts(value: Value, option: Mapping[str, Any]) -> list[str]:
    levels = [value] if isinstance(value, (str, int, float, os.PathLike)) else list(value or ())
    return [_text(level, option) for level in levels]


def _text(level: Level, option: Mapping[str, Any]) -> str:
    if isinstance(level, bool):
        if "on,off" not in option.get("value", ""):
            raise TcptollError(f"{option.get('name', 'this option')}={level}: it takes {option.get('value', 'text')}")
        return "on" if level else "off"
    if not isinstance(level, (str, int, float, os.PathLike)):
        raise TcptollError(f"{level!r} is neither text nor a number")
    return os.fspath(level) if isinstance(level, os.PathLike) else str(level)


def _near(word: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(names), n=1)
    return f"; did you mean {near[0].replace('-', '_')!r}?" if near else ""

"""The folder of a fleet: the records of its points, and `fleet.json`, the state that outlives the runner."""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .._errors import TcptollError, printable
from .plan import Plan, is_name

#: States of a point. `done`, `failed`, `missing` and `refused` are final.
STATES = ("waiting", "running", "done", "failed", "missing", "refused")
_FORMAT = 1
#: How long `fleet status` may have the lock, at most.
_ASKED_S = 0.5


@dataclass
class Point:
    """What is known of a point."""

    state: str = "waiting"
    reason: str = ""
    done: int = 0
    planned: int = 0
    #: Trials of the record that this fleet did not measure in its last attempt, but found.
    found: int = 0
    attempts: int = 0
    #: Time from its first beginning to its end, in seconds.
    seconds: float = 0.0
    status: int | None = None


@dataclass
class State:
    """The content of fleet.json."""

    study: str = "study.toml"
    name: str = ""
    key: str = ""
    seed: int = 0
    version: str = ""
    deadline_s: float = 0.0
    begun: str = ""
    ended: str = ""
    interrupted: bool = False
    clock_bound_s: float | None = None
    points: dict[str, Point] = field(default_factory=dict)


def now() -> str:
    """RFC 3339 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Store:
    """A folder that holds one fleet. One runner at a time may write it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = State()
        self._lock: int | None = None
        self._shown = ""

    def path_of(self, point: str) -> Path:
        """Where the record of a point is stored."""
        if not is_name(point):  # No name comes so far; a file outside the folder must be impossible all the same.
            raise TcptollError(f"{printable(point)!r} is not a name of a vantage point")
        return self.folder / "points" / f"{point}.jsonl"

    def read(self) -> bool:
        """Reads the state; False if the folder holds no fleet. Raises TcptollError if the state is damaged."""
        path = self.folder / "fleet.json"
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return False
        except (OSError, ValueError, RecursionError) as error:
            raise TcptollError(f"{printable(str(path))} cannot be read: {printable(str(error))}") from error
        self.state = _state(content, path)
        return True

    def begin(self, plan: Plan) -> None:
        """Takes the folder for this plan, or goes on with it. Raises TcptollError if it holds another fleet."""
        try:
            (self.folder / "points").mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / "fleet.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            _lock(self._lock)
        except BlockingIOError as error:
            raise TcptollError(f"--out {printable(str(self.folder))}: another fleet run is writing it") from error
        except OSError as error:
            raise TcptollError(f"--out {printable(str(self.folder))} cannot be written: {error.strerror}") from error
        if self.read() and self.state.key != plan.key:
            if plan.split is not None and self.state.clock_bound_s is not None:
                raise TcptollError(
                    f"--out {printable(str(self.folder))} holds a load that was split, which cannot go on: its shares must run "
                    "at the same time. Choose another folder with --out to run all of them again"
                )
            raise TcptollError(
                f"--out {printable(str(self.folder))} holds another fleet ({printable(self.state.name)}, seed "
                f"{self.state.seed}, tcptoll {printable(self.state.version)}): choose another folder with --out"
            )
        write(self.folder / "study.toml", plan.study.text.encode())
        self.state.name, self.state.key, self.state.seed = plan.study.name, plan.key, plan.seed
        self.state.version = plan.version
        self.state.begun = self.state.begun or now()
        self.state.ended, self.state.interrupted = "", False

    def save(self) -> None:
        """Writes fleet.json if the state has changed."""
        content = {"format": _FORMAT, **asdict(self.state)}
        shown = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
        if shown != self._shown:
            write(self.folder / "fleet.json", shown.encode())
            self._shown = shown

    def in_use(self) -> bool | None:
        """Whether a runner is writing the folder. None: this user cannot tell."""
        try:
            with open(self.folder / "fleet.lock", "rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        except OSError:
            return None
        return False

    def close(self) -> None:
        """Lets another runner write."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _lock(handle: int) -> None:
    """Takes the lock of a runner. Whoever asks for the state has it for an instant. Raises BlockingIOError."""
    gives_up = time.monotonic() + _ASKED_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > gives_up:
                raise
            time.sleep(0.01)


def write(path: Path, content: bytes) -> None:
    """Replaces a file. After a crash it has the old content or the new one, and the new one is on the disk."""
    try:
        handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(draft, 0o644)
            os.replace(draft, path)
        except BaseException:
            os.unlink(draft)
            raise
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise TcptollError(f"{printable(str(path))} cannot be written: {error.strerror}", 3) from error


def _state(content: Any, path: Path) -> State:
    """From JSON; every field must have its type, as the file may have been edited."""
    damaged = TcptollError(f"{printable(str(path))} is damaged: it is not what `fleet run` writes")
    if not isinstance(content, dict) or content.get("format") != _FORMAT or not isinstance(content.get("points"), dict):
        raise damaged
    state = State()
    _fill(state, content, damaged)
    state.points = {}
    for name, value in content["points"].items():
        point = Point()
        if not isinstance(value, dict):
            raise damaged
        _fill(point, value, damaged)
        if point.state not in STATES or (point.state != "refused" and not is_name(name)):
            raise damaged
        state.points[name] = point
    return state


def _fill(target: State | Point, content: dict[str, Any], damaged: TcptollError) -> None:
    optional = {"status": int, "clock_bound_s": float}
    for name, default in asdict(target).items():
        if name == "points" or name not in content:
            continue
        value = content[name]
        kind: type = optional.get(name, type(default))
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not (type(value) is kind or (name in optional and value is None)):
            raise damaged
        if isinstance(value, float) and not 0 <= value < 1e9:
            raise damaged
        setattr(target, name, value)

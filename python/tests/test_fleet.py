"""Fleets without a network: names, keys, checks of hostile results, and the runner's decisions."""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import time
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from fleets import payload_of, plan_of, record_of, state_of

from tcptoll import TcptollError
from tcptoll.fleet import arguments, commands, plan, runner
from tcptoll.fleet.frames import read_frames
from tcptoll.fleet.hosts import hosts
from tcptoll.fleet.plan import Clock, Event, Executor, Failure, Gone, Lost, Plan, PointError, Progress, Result, Split, Work
from tcptoll.fleet.results import Refusal, check
from tcptoll.fleet.runner import Runner
from tcptoll.fleet.screen import Screen, table
from tcptoll.fleet.store import Point, State, Store


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("30m", 1800), ("1h30m", 5400), ("500ms", 0.5), ("1.5h", 5400)])
def test_durations(text: str, seconds: float) -> None:
    assert plan.seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "30", "m", "0s", "-1s", "1s 2s", "31d", "1x", "٣s", "1e3s", "infs"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="a time"):
        plan.seconds(text)


@pytest.mark.parametrize("name", ["a", "fra1", "A.b-c_d", "0", "x" * 64])
def test_names(name: str) -> None:
    assert plan.is_name(name)


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "-a", "a\n", "a b", "x" * 65, "\x1b[2J", "é", None, 7, b"a"])
def test_hostile_names(name: object) -> None:
    assert not plan.is_name(name)


def test_a_key_depends_on_all_that_decides_what_is_measured() -> None:
    one = plan_of("a", "b", text="x")
    keys = {one.key, one.key_of("a"), one.key_of("b")}
    keys |= {Plan(one.study, 8, "0.1.0", ("a",)).key_of("a"), Plan(one.study, 7, "0.2.0", ("a",)).key_of("a")}
    keys |= {plan_of("a", text="y").key_of("a"), Plan(one.study, 7, "0.1.0", ("a",), Split(1, "1s")).key_of("a")}
    assert len(keys) == 7 and all(re.fullmatch("[0-9a-f]{64}", key) for key in keys)
    assert one.key_of("a") == plan_of("a", text="x").key_of("a")


def test_a_share_begins_on_the_clock_of_its_point() -> None:
    split = Split(1_000_000_000_250_000_000, "2s", {"a": Clock(0.5, 0.001), "b": Clock(-0.25, 0.002)})
    shared = Plan(plan_of().study, 7, "0.1.0", ("a", "b"), split)
    works = [shared.work(name, 1, "", 1.0, 1.0) for name in ("a", "b")]
    assert [work.share for work in works] == ["1/2", "2/2"]
    assert [work.start_at for work in works] == ["2001-09-09T01:46:40.250000Z"] * 2
    assert [work.clock_ahead for work in works] == ["0.500000", "-0.250000"]
    assert split.bound_s == 0.003


def test_every_point_has_a_seed_of_its_own_but_shares_of_a_load_have_one() -> None:
    apart = plan_of("a", "b")
    assert len({apart.seed, apart.seed_of("a"), apart.seed_of("b")}) == 3
    assert apart.seed_of("a") == plan_of("a").seed_of("a") < 1 << 48
    shared = Plan(apart.study, 7, "0.1.0", ("a", "b"), Split(1, "2s", {}))
    assert [shared.seed_of(name) for name in ("a", "b")] == [7, 7]


def test_the_exchange_with_the_shortest_round_trip_gives_the_clock() -> None:
    waits = iter([0.02, 0.0, 0.01])

    def exchange() -> int:
        time.sleep(next(waits))
        return time.time_ns() + 5_000_000_000

    clock = plan.least_error(exchange, 3)
    assert abs(clock.offset_s - 5) <= clock.bound_s + 0.001 and clock.bound_s < 0.01


def test_a_result_of_the_plan_is_taken() -> None:
    checked = check(payload_of(record_of("a")), plan_of("a"), "a")
    assert (checked.trials, checked.measured, checked.status) == (4, 4, 0)


BOMB = zlib.compress(bytes(80 << 20), 9)
RECORD = record_of("a")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "NoneType, not an object"),
        (payload_of(RECORD, protocol=9), "protocol 9, but 1 was asked"),
        (payload_of(RECORD, sha256="0" * 64), "sha256"),
        (payload_of(RECORD, record=BOMB), "more than 64 MiB"),
        (payload_of(RECORD, record=b"xxxx"), "cannot be decompressed"),
        (payload_of(RECORD, record=zlib.compress(RECORD)[:-3]), "cut off"),
        (payload_of(RECORD, record=zlib.compress(RECORD) + b"x"), "bytes follow"),
        (payload_of(RECORD, record=None), "no record"),
        (payload_of(RECORD, record="text"), "no record"),
        (payload_of(RECORD, status=2, error="the server\x1b[2J is away"), r"the server\\x1b\[2J is away"),
        (payload_of(RECORD, status=2), "exit status 2"),
        (payload_of(RECORD, status=True), "no valid 'status'"),
        (payload_of(RECORD, measured=-1), "no valid 'measured'"),
        (payload_of(RECORD, measured=5), "5 measured trials, but its record has 4"),
        (payload_of(record_of("a", tcptoll_version="9.9")), "says version 9.9, but 0.1.0 was asked"),
        (payload_of(record_of("b")), "says vantage b, but a was asked"),
        (payload_of(record_of("a", seed=8)), "says seed 8, but "),
        (payload_of(record_of("a", seed=7.0)), "says seed 7.0, but "),
        (payload_of(record_of("a", record_version=3)), "says record_version 3, but 2"),
        (payload_of(record_of("a", experiment="http")), "says experiment http"),
        (payload_of(record_of("a", study={"name": "other"})), "another study"),
        (payload_of(record_of("a", study={"name": "fake", "margin": "50%"})), "another study"),
        (payload_of(record_of("a", study=[])), "another study"),
        (payload_of(RECORD[:-1]), "cut off"),
        (payload_of(RECORD.rsplit(b"\n", 2)[0] + b"\n"), "did not finish"),
        (payload_of(b"\n" + RECORD), "not JSON"),
        (payload_of(b"[" * 100_000 + b"\n"), "not JSON"),
        (payload_of(b"[]\n"), "not an object"),
    ],
)
def test_a_hostile_result_fails_with_its_reason(payload: object, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        check(payload, plan_of("a"), "a")


def test_frames_of_a_remote_shell() -> None:
    head = b"Welcome\n\x1b[1mhi\n\x02found 2\n\x02trials 3\n"
    frames = list(read_frames(io.BytesIO(head + b"\x02result 0 2 4 3 %d\nerr%s" % (len(RECORD), RECORD))))
    assert frames[:2] == [("found", 2), ("trials", 3)]
    assert check(frames[2][1], plan_of("a"), "a").measured == 2
    for answer, error in (
        (b"x" * (70 << 10), "more than 64 KiB"),
        (b"\x02surprise\n", "not what the script prints"),
        (b"\x02result 0 0 0 0 99999999999\n", "limit is 64 MiB"),
        (b"\x02result 0 0 0 0 100\nshort", "connection ended"),
    ):
        with pytest.raises((PointError, ConnectionError), match=error):
            list(read_frames(io.BytesIO(answer)))


class Stub(Executor):
    """Points whose events a test decides: a list for each attempt."""

    def __init__(self, script: dict[str, list[list[Event]]], away: Sequence[str] = ()) -> None:
        self.script, self.away = script, set(away)
        self.queue: list[Event] = []
        self.running: set[str] = set()
        self.most = 0
        self.order: list[str] = []

    def points(self) -> Sequence[str]:
        return list(self.script)

    def present(self, point: str) -> bool:
        return point not in self.away

    def probe(self, point: str) -> str:
        return "9.9" if point == "old" else "0.1.0"

    def clock(self, point: str) -> Clock:
        return Clock(0.0, 0.001)

    def submit(self, work: Work) -> None:
        self.order.append(work.point)
        self.running.add(work.point)
        self.most = max(self.most, len(self.running))
        self.queue += self.script[work.point].pop(0)

    def next_event(self, timeout: float) -> Event | None:
        if not self.queue:
            time.sleep(min(timeout, 0.02))
            return None
        event = self.queue.pop(0)
        if isinstance(event, Result | Failure | Lost):
            self.running.discard(event.point)
        return event

    def cancel(self, point: str) -> None:
        self.running.discard(point)

    def close(self, timeout: float) -> None:
        self.queue.clear()


def good(point: str) -> list[Event]:
    return [Progress(point, 1, 0), Result(point, payload_of(record_of(point)))]


def runs(stub: Stub, out: Path, at_once: int = 9, deadline_s: float = 5.0, patience_s: float = 60.0) -> dict[str, Any]:
    planned = plan_of(*stub.script)
    store = Store(out)
    store.begin(planned)
    try:
        Runner(planned, stub, store, at_once=at_once, deadline_s=deadline_s, deadline="5s", patience_s=patience_s,
               show=lambda last: None).run()  # fmt: skip
    finally:
        store.close()
    return state_of(out)


def test_a_point_that_lies_fails_alone(tmp_path: Path) -> None:
    points = runs(Stub({"a": [[Result("a", payload_of(record_of("b")))]], "b": [good("b")], "c": [[Failure("c", "no")]]}), tmp_path)
    assert {name: point["state"] for name, point in points.items()} == {"a": "failed", "b": "done", "c": "failed"}
    assert points["a"]["reason"] == "its record says vantage b, but a was asked"
    assert [path.name for path in (tmp_path / "points").iterdir()] == ["b.jsonl"]


def test_at_most_so_many_measure_concurrently_and_the_same_folder_goes_on(tmp_path: Path) -> None:
    stub = Stub({"a": [good("a")], "b": [[Failure("b", "no")]], "c": [good("c")]})
    runs(stub, tmp_path, at_once=1)
    assert (stub.most, stub.order) == (1, ["a", "b", "c"])
    again = Stub({"a": [], "b": [good("b")], "c": []})
    assert {point["state"] for point in runs(again, tmp_path).values()} == {"done"}
    assert again.order == ["b"]


def test_a_lost_point_lets_others_pass_and_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_PAUSE_S", 0.05)
    stub = Stub({"a": [[Lost("a", "its worker went away")], good("a")], "b": [good("b")]})
    points = runs(stub, tmp_path, at_once=1)
    assert stub.order == ["a", "b", "a"] and points["a"]["attempts"] == 2
    assert {point["state"] for point in points.values()} == {"done"}


def test_the_deadline_names_what_is_missing(tmp_path: Path) -> None:
    begun = time.monotonic()
    points = runs(Stub({"a": [good("a")], "never": [[]], "away": []}, away=["away"]), tmp_path, deadline_s=0.3)
    assert time.monotonic() - begun >= 0.3
    assert points["never"] == {**points["never"], "state": "missing", "reason": "no result by the deadline of 5s"}
    assert points["away"]["reason"] == "no result by the deadline of 5s (before: no worker yet)"


def test_a_point_that_takes_far_too_long_does_not_hold_up_the_others(tmp_path: Path) -> None:
    points = runs(Stub({"a": [[]], "b": [good("b")]}), tmp_path, at_once=1, patience_s=0.2)
    assert points["a"]["state"] == "missing" and "others had to wait" in points["a"]["reason"]
    assert points["b"]["state"] == "done"


def test_a_scheduler_that_goes_away_ends_the_fleet(tmp_path: Path) -> None:
    points = runs(Stub({"a": [[Gone("the scheduler closed the connection")]], "b": []}, away=["b"]), tmp_path)
    assert points["a"]["reason"] == "the scheduler closed the connection" and points["b"]["state"] == "missing"


def test_an_interrupted_fleet_keeps_its_state(tmp_path: Path) -> None:
    class Interrupted(Stub):
        def next_event(self, timeout: float) -> Event | None:
            if not self.queue:
                raise KeyboardInterrupt
            return super().next_event(timeout)

    with pytest.raises(KeyboardInterrupt):
        runs(Interrupted({"a": [good("a")], "b": [[]]}), tmp_path)
    points = state_of(tmp_path)
    assert points["a"]["state"] == "done" and (points["b"]["state"], points["b"]["reason"]) == ("missing", "interrupted")


def test_another_version_refuses_all_before_anything_runs() -> None:
    stub = Stub({"a": [], "old": []})
    with pytest.raises(TcptollError, match="Here: 0.1.0; a: 0.1.0; old: 9.9. Install 0.1.0 on old"):
        commands._probed(stub, ["a", "old"], "0.1.0")


def test_hostile_names_of_workers_are_refused_and_shown_safely(capsys: pytest.CaptureFixture[str]) -> None:
    given = argparse.Namespace(points=None, expect=["later"])
    names, hostile = commands._names(Stub({"a": [], "../../x": [], "\x1b[2J": []}), given)
    assert names == ["a", "later"] and len(hostile) == 2
    shown = capsys.readouterr().err
    assert "'../../x'" in shown and "\x1b" not in shown


def test_a_folder_holds_one_fleet(tmp_path: Path) -> None:
    first, second = Store(tmp_path), Store(tmp_path)
    first.begin(plan_of("a", text="x"))
    with pytest.raises(TcptollError, match="another fleet run is writing it"):
        second.begin(plan_of("a", text="x"))
    first.save()
    first.close()
    with pytest.raises(TcptollError, match="holds another fleet"):
        second.begin(plan_of("a", text="y"))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"format":1}', '{"format":1,"points":{"../x":{"state":"done"}}}',
                                     '{"format":1,"points":{"a":{"state":"odd"}}}', '{"format":1,"seed":"x","points":{}}'])  # fmt: skip
def test_a_damaged_state_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "fleet.json").write_text(content, encoding="utf-8")
    with pytest.raises(TcptollError, match=r"fleet\.json (is damaged|cannot be read)"):
        Store(tmp_path).read()


def test_the_screen_fits() -> None:
    points = {f"point-{n:03}": Point("running" if n % 50 == 0 else "done", done=3, planned=6, seconds=75) for n in range(200)}
    points["failed"] = Point("failed", "a very long reason " * 20)
    lines = table(State(name="x", points=points), 80, 24)
    assert len(lines) == 24 and max(map(len, lines)) <= 80
    assert lines[0] == "x: 4 running, 196 done, 1 failed"
    assert "point-000" in lines[1] and "##########.........." in lines[1] and "1m15s" in lines[1]
    assert lines[-1] == "  … and 179 more"
    assert "\x1b" not in "".join(table(State(points={"\x1b[2J": Point("refused")}), 80, 24))


def test_without_a_terminal_each_change_is_a_line() -> None:
    state, file = State(points={"a": Point()}), io.StringIO()
    screen = Screen(state, file)
    for step in ("waiting", "running", "running", "done"):
        state.points["a"].state = step
        screen.show(False)
    assert file.getvalue() == "a: waiting\na: running\na: done (0/0 trials)\n".replace("0/0", "0")


@pytest.mark.parametrize(
    ("typed", "error"),
    [
        (["run", "x.toml", "--local", "0"], "error: --local: '0' is not a whole number from 1 to 64"),
        (["run", "x.toml", "--local", "2", "--deadline", "30"], "error: --deadline: '30': a time needs a unit"),
        (["run", "x.toml", "--local", "2", "--hosts", "h"], "error: --hosts: not allowed with argument --local"),
        (["run", "x.toml", "--scheduler", "host"], "error: --scheduler host: an address looks like tcp://host:8786"),
        (["run", "x.toml", "--local", "2", "--expect", "a"], "error: --expect a: only workers of a --scheduler"),
        (["run", "x.toml", "--local", "2", "--points", "a,../b"], "error: --points: '../b' is not a name of a vantage point"),
        (["run", "x.toml", "--local", "2", "--every", "2s"], "error: --every 2s: it needs --split"),
        (["run", "x.toml"], "error: one of the arguments --scheduler --hosts --local is required"),
        ([], "error: the following arguments are required: COMMAND"),
    ],
)
def test_a_wrong_command_line_says_what_is_wrong(typed: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        arguments.fleet(typed)
    assert ended.value.code == 2 and capsys.readouterr().err.startswith(error)


HOSTS = '[[point]]\nname = "fra1"\nssh = "user@fra1"\n'


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
@pytest.mark.parametrize(
    ("content", "error"),
    [
        (HOSTS, ""),
        ("", "it has .*point.* tables"),
        (HOSTS + HOSTS, "two points have the name fra1"),
        (HOSTS.replace("fra1", "../x"), "is not a name of a point"),
        (HOSTS.replace("user@fra1", "-oProxyCommand=x"), "would be an option of ssh"),
        (HOSTS + "port = 22\n", "has name, ssh and optionally binary"),
        (HOSTS.replace('"user@fra1"', "7"), "both as text"),
        ("[[point", "end of document"),
    ],
)
def test_hosts_files(tmp_path: Path, content: str, error: str) -> None:
    path = tmp_path / "hosts.toml"
    path.write_text(content, encoding="utf-8")
    if not error:
        listed, command = hosts(path)
        assert [(host.name, host.ssh, host.binary) for host in listed] == [("fra1", "user@fra1", "tcptoll")] and command == ""
        return
    with pytest.raises(TcptollError, match=error):
        hosts(path)


def test_importing_the_package_does_not_import_fleets() -> None:
    code = "import sys, tcptoll, tcptoll.__main__; print([m for m in sys.modules if 'fleet' in m or 'dask' in m or 'distributed' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1])
    assert done.stdout == "[]\n"

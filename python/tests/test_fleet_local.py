"""What a worker does, and fleets whose points are processes of this machine or hosts over a pretended ssh."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from fleets import (
    environment,
    fake_program,
    measured_twice,
    plan_of,
    record_of,
    settings_of,
    state_of,
    study_file,
    trials_in,
)

from tcptoll import TcptollError
from tcptoll.fleet import arguments, task
from tcptoll.fleet.plan import Work
from tcptoll.fleet.results import check
from tcptoll.fleet.task import Trials, run_or_resume

#: Like ssh: a greeting of the login shell, and a home of its own for each host.
FAKE_SSH = """#!/bin/sh
while [ $# -gt 2 ]; do shift; done
case $1 in *down) echo "ssh: connect to host $1 port 22: Connection refused" >&2; exit 255;; esac
echo "Welcome to $1"
export XDG_DATA_HOME="{homes}/$1"
exec sh -c "$2"
"""


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The fake program in place of the real one; a folder."""
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path


def work_of(folder: Path, **knobs: object) -> Work:
    plan = plan_of("a", text=study_file(folder, **knobs).read_text(encoding="utf-8"))
    return plan.work("a", 1, "t", 60.0, 2.0)


def never() -> bool:
    return False


def test_a_record_is_continued_and_a_finished_one_is_not_measured_again(tmp_path: Path) -> None:
    work, settings = work_of(tmp_path, rounds=4, trial=0.05), settings_of(tmp_path)
    seen: list[tuple[int, int]] = []
    stopped = run_or_resume(work, settings, lambda *counts: seen.append(counts), lambda: bool(seen and seen[-1][0] >= 3))
    assert stopped["error"] == "the run was stopped before its end" and seen[-1][0] >= 3
    rest = run_or_resume(work, settings, lambda *_: None, never)
    assert rest["status"] == 0 and rest["found"] >= 3
    path = tmp_path / "store" / f"{work.key}.jsonl"
    assert (trials_in(path), measured_twice(path)) == (8, 0)
    plan = plan_of("a", text=work.study)
    assert check(rest, plan, "a").record == path.read_bytes()
    again = run_or_resume(work, settings, lambda *_: None, never)
    assert (again["status"], again["measured"], again["sha256"]) == (0, 0, rest["sha256"])
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_a_record_in_use_is_waited_for_and_then_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, settings = work_of(tmp_path, rounds=1), settings_of(tmp_path)
    path = tmp_path / "store" / f"{work.key}.jsonl"
    path.parent.mkdir(mode=0o700)
    path.write_bytes(record_of("a", 2))
    monkeypatch.setattr(task, "_LOCKED_S", 0.3)
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        refused = run_or_resume(work, settings, lambda *_: None, never)
    assert refused["status"] == 2 and "another run is writing it" in refused["error"]
    assert refused["measured"] == 0 and path.read_bytes() == record_of("a", 2)
    path.unlink()
    monkeypatch.setattr(task, "_LOCKED_S", 30)
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        threading.Timer(0.3, lambda: fcntl.flock(other, fcntl.LOCK_UN)).start()
        assert run_or_resume(work, settings, lambda *_: None, never)["status"] == 0


def test_an_empty_record_is_begun_anew(tmp_path: Path) -> None:
    work, settings = work_of(tmp_path, rounds=1), settings_of(tmp_path)
    (tmp_path / "store").mkdir(mode=0o700)
    (tmp_path / "store" / f"{work.key}.jsonl").touch()
    assert run_or_resume(work, settings, lambda *_: None, never)["measured"] == 2


def test_a_worker_refuses_what_it_should(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work, settings = work_of(tmp_path, rounds=1), settings_of(tmp_path)

    def error(work: Work, settings: task.Settings = settings) -> str:
        return str(run_or_resume(work, settings, lambda *_: None, never)["error"])

    assert error(replace(work, version="9.9")) == "its tcptoll is version 0.1.0, but 9.9 was asked"
    assert "protocol 1, but 2 was asked" in error(replace(work, protocol=2))
    assert "not valid" in error(replace(work, key="../../x"))
    assert "not valid" in error(replace(work, point="../x"))
    assert "more than 1 MiB" in error(replace(work, study="#" * (1 << 20 | 1)))
    assert "/nonexistent --version failed" in error(work, replace(settings, binary="/nonexistent"))
    assert not (tmp_path / "store").exists()
    monkeypatch.setattr(task, "MOST_RECORD_BYTES", 100)
    assert "MB; the limit is" in error(work)
    (tmp_path / "store").chmod(0o777)
    assert "writable by nobody else" in error(work)


def test_a_run_that_hangs_ends_by_itself(tmp_path: Path) -> None:
    work = replace(work_of(tmp_path, rounds=1, trial=60), most_s=0.3)
    begun = time.monotonic()
    result = run_or_resume(work, settings_of(tmp_path), lambda *_: None, never)
    assert result["error"] == "the run was stopped before its end"
    print(f"ended after {time.monotonic() - begun:.2f} s")


def test_trials_are_counted_while_a_record_grows(tmp_path: Path) -> None:
    path, record = tmp_path / "x.jsonl", record_of("a", 5)
    trials = Trials(path)
    counts = [trials.count()]
    for end in [*range(0, len(record), 37), len(record)]:
        path.write_bytes(record[:end])
        counts.append(trials.count())
    assert counts == sorted(counts) and counts[0] == 0 and counts[-1] == 5
    path.write_bytes(record_of("a", 1))
    assert trials.count() == 1


def test_a_fleet_on_this_machine(fake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study, out = study_file(fake, rounds=2), fake / "out"
    typed = ["run", str(study), "--local", "2", "--out", str(out), "--seed", "5"]
    assert arguments.fleet(typed) == 0
    shown = capfd.readouterr()
    assert shown.out == "merged local-1 local-2\n" and "local-2: done (4 trials)" in shown.err
    assert {(point["state"], point["found"]) for point in state_of(out).values()} == {("done", 0)}
    # Elsewhere, with the same seed: the points have their records.
    assert arguments.fleet([*typed[:-3], str(fake / "again"), "--seed", "5"]) == 0
    assert {point["found"] for point in state_of(fake / "again").values()} == {4}
    (out / "points/local-1.jsonl").unlink()
    assert arguments.fleet(["collect", str(out)]) == 1
    assert "--missing=local-1=its record was deleted" in capfd.readouterr().out
    assert arguments.fleet(["status", str(out)]) == 0
    assert capfd.readouterr().out.startswith("fake: 2 done\n")


def test_nothing_measured_is_status_2(fake: Path) -> None:
    done = _tcptoll(fake, ["fleet", "run", str(study_file(fake, fails="yes")), "--local", "2", "--out", str(fake / "out")])
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.endswith("error: no point has a result: local-1, local-2: the server is not reachable\n")
    with pytest.raises(TcptollError, match=r"none\.toml cannot be read: No such file or directory"):
        arguments.fleet(["run", str(fake / "none.toml"), "--local", "2", "--out", str(fake / "out")])


def _measures(fake: Path, study: Path, point: str) -> subprocess.Popen[str]:
    """A fleet of two points on this machine, of which this one measures."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tcptoll", *_two_points(fake, study)], env=environment(fake), stderr=subprocess.PIPE, text=True
    )
    assert child.stderr
    for line in child.stderr:
        if line.startswith(f"{point}: running"):
            break
    return child


def _two_points(fake: Path, study: Path) -> list[str]:
    return ["fleet", "run", str(study), "--local", "2", "--out", str(fake / "out")]


def test_an_interrupted_fleet_can_be_collected_and_goes_on(fake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study, out = study_file(fake, rounds=3, trial=0.1), fake / "out"
    child = _measures(fake, study, "local-2")
    time.sleep(0.25)
    child.send_signal(signal.SIGINT)
    assert child.stderr
    rest = child.stderr.read()
    assert child.wait() == 130 and "collect" in rest
    state = json.loads((out / "fleet.json").read_text(encoding="utf-8"))
    assert state["interrupted"] and [point["state"] for point in state["points"].values()] == ["done", "missing"]
    assert arguments.fleet(["collect", str(out)]) == 1
    assert capfd.readouterr().out == "merged local-1 --missing=local-2=interrupted\n"
    assert arguments.fleet(_two_points(fake, study)[1:]) == 0
    assert capfd.readouterr().out == "merged local-1 local-2\n"
    assert (trials_in(out / "points/local-2.jsonl"), measured_twice(out / "points/local-2.jsonl")) == (6, 0)


def test_the_state_of_a_fleet_whose_runner_was_killed(fake: Path, capfd: pytest.CaptureFixture[str]) -> None:
    # So long that it has not ended before it is killed, on any machine.
    child = _measures(fake, study_file(fake, rounds=3, trial=60), "local-1")
    while state_of(fake / "out")["local-1"]["state"] != "running":  # It is written once a second.
        time.sleep(0.05)
    assert arguments.fleet(["status", str(fake / "out")]) == 0
    shown = capfd.readouterr().out
    assert "local-1  running" in shown and "not ended" in shown
    child.kill()
    child.communicate()
    assert arguments.fleet(["status", str(fake / "out")]) == 0
    shown = capfd.readouterr().out
    assert "local-1  waiting" in shown and "stopped before its end: the same `fleet run` command goes on" in shown


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib came with Python 3.11")
def test_hosts_over_ssh(fake: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    ssh = fake / "ssh"
    ssh.write_text(FAKE_SSH.format(homes=fake), encoding="utf-8")
    ssh.chmod(0o755)
    program = fake_program(fake)
    listed = {"fra1": program, "nyc1": program, "down": program}
    tables = [f'[[point]]\nname = "{name}"\nssh = "user@{name}"\nbinary = "{binary}"\n' for name, binary in listed.items()]
    (fake / "hosts.toml").write_text(f'ssh_command = "{ssh} -F x"\n' + "".join(tables), encoding="utf-8")
    monkeypatch.delenv("TCPTOLL_SSH", raising=False)
    out = fake / "out"
    typed = ["run", str(study_file(fake, rounds=2)), "--hosts", str(fake / "hosts.toml"), "--seed", "5"]
    assert arguments.fleet([*typed, "--out", str(out)]) == 1
    points = state_of(out)
    assert [point["state"] for point in points.values()] == ["missing", "done", "done"]
    assert points["down"]["reason"].endswith("Connection refused")
    # The other folder has no records, but the hosts do.
    assert arguments.fleet([*typed, "--out", str(fake / "two"), "--points", "fra1"]) == 0
    assert state_of(fake / "two")["fra1"]["found"] == 4
    assert arguments.fleet([*typed, "--out", str(fake / "three"), "--points", "fra1,nyc1", "--split", "--every", "7s"]) == 0
    header = json.loads((fake / "three/points/nyc1.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert header["share"] == "2/2" and header["start_at"].endswith("Z")
    assert json.loads((fake / "three/fleet.json").read_text(encoding="utf-8"))["clock_bound_s"] > 0
    capfd.readouterr()


def test_the_real_program(program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    study = tmp_path / "tiny.toml"
    study.write_text(
        'name = "tiny"\nquestion = "Does a longer backlog change the connect latency?"\nexperiment = "connect"\n'
        '[settings]\ncount = 20\n[rounds]\nfixed = 1\n[[arm]]\nname = "a"\nbacklog = 16\n[[arm]]\nname = "b"\nbacklog = 128\n',
        encoding="utf-8",
    )
    assert arguments.fleet(["run", str(study), "--local", "2", "--at-once", "2", "--out", str(tmp_path / "out")]) == 0
    assert {point["state"] for point in state_of(tmp_path / "out").values()} == {"done"}
    assert (tmp_path / "out/merged.jsonl").stat().st_size > 0 and capfd.readouterr().out


def _tcptoll(folder: Path, typed: list[str]) -> subprocess.CompletedProcess[str]:
    typed = typed[typed.index("fleet") :]
    command = [sys.executable, "-m", "tcptoll", *typed]
    return subprocess.run(command, env={**os.environ, **environment(folder)}, capture_output=True, text=True, check=False, timeout=60)

"""Fleets on Dask: a scheduler and workers as they are started by hand, on loopback, and workers that die."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

import pytest
from fleets import environment, measured_twice, plan_of, state_of, study_file, trials_in

from tcptoll import TcptollError
from tcptoll.fleet import arguments
from tcptoll.fleet.plan import Event, Failure
from tcptoll.fleet.worker import quiet, security

pytest.importorskip("distributed", reason="Dask is not installed")
quiet()


class Processes:
    """A scheduler and its workers; each is a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        self.alive: dict[str, subprocess.Popen[str]] = {}
        line = self._start("scheduler", "scheduler", "--port", "0", *options)
        self.address = re.findall(r"(?:tcp|tls)://\S+", line)[0]

    def begin(self, *names: str) -> dict[str, subprocess.Popen[str]]:
        """Starts workers, together: most of the time goes into imports."""
        threads = [threading.Thread(target=self.worker, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return self.alive

    def worker(self, name: str) -> None:
        self._start(name, "worker", self.address, "--vantage", name, *self.options)

    def kill(self, name: str) -> None:
        child = self.alive.pop(name)
        child.kill()
        child.wait()

    def close(self) -> None:
        for child in self.alive.values():
            child.kill()
            child.wait()

    def _start(self, name: str, *typed: str) -> str:
        """The line that says that it is ready."""
        command = [sys.executable, "-m", "tcptoll", *typed]
        child = subprocess.Popen(command, env=environment(self.folder), stderr=subprocess.PIPE, text=True)
        self.alive[name] = child
        assert child.stderr
        before = ""
        for line in child.stderr:
            if line.startswith(("vantage point", "scheduler at")):
                break
            before += line
        else:
            raise AssertionError(before)
        threading.Thread(target=_drain, args=(child.stderr,), daemon=True).start()
        return line


def _drain(file: IO[str]) -> None:
    for _ in file:
        pass


@pytest.fixture(scope="module")
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    processes = Processes(tmp_path_factory.mktemp("dask"))
    try:
        processes.begin("a", "b", "c")
        yield processes
    finally:
        processes.close()


@pytest.fixture
def fleet(dask: Processes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs `fleet run` on the workers; records go to `tmp_path/out`."""
    monkeypatch.setenv("TCPTOLL_BINARY", environment(tmp_path)["TCPTOLL_BINARY"])

    def run(study: Path, *typed: str, out: str = "out") -> int:
        return arguments.fleet(["run", str(study), "--scheduler", dask.address, "--out", str(tmp_path / out), *typed])

    return run


def test_three_points(fleet: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    study = study_file(tmp_path, rounds=2)
    assert fleet(study) == 0
    assert capfd.readouterr().out == "merged a b c\n"
    assert fleet(study) == 0 and {point["found"] for point in state_of(tmp_path / "out").values()} == {0}
    assert fleet(study, "--split", out="split") == 0
    headers = [_header(tmp_path / "split/points" / f"{name}.jsonl") for name in "abc"]
    assert [header["share"] for header in headers] == ["1/3", "2/3", "3/3"]
    assert len({header["start_at"] for header in headers}) == 1
    with pytest.raises(TcptollError, match="--points x: no such vantage point; there are: a, b, c"):
        fleet(study, "--points", "x")


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_measured_twice(
    dask: Processes, fleet: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study = study_file(tmp_path, rounds=6, trial=0.1)
    threading.Thread(target=_replace, args=(dask, tmp_path / "out", "b"), daemon=True).start()
    assert fleet(study, "--seed", "3", "--points", "a,b") == 0
    point, path = state_of(tmp_path / "out")["b"], tmp_path / "out/points/b.jsonl"
    assert point["attempts"] == 2 and point["found"] > 0
    assert (trials_in(path), measured_twice(path), path.read_text().count('"resumed"')) == (12, 0, 1)
    assert "b: waiting: its worker went away" in capfd.readouterr().err
    # Killed after its end: the replacement has the record.
    dask.kill("b")
    dask.worker("b")
    assert fleet(study, "--seed", "3", "--points", "b", out="again") == 0
    assert state_of(tmp_path / "again")["b"]["found"] == point["done"]
    assert (tmp_path / "again/points/b.jsonl").read_bytes() == path.read_bytes()


def test_what_does_not_come_is_missing_at_the_deadline(
    fleet: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study = study_file(tmp_path, rounds=1, trial=60)
    begun = time.monotonic()
    with pytest.raises(TcptollError, match="no point has a result"):
        fleet(study, "--points", "a", "--expect", "later", "--deadline", "1500ms")
    took = time.monotonic() - begun
    print(f"deadline of 1.5 s: ended after {took:.2f} s")
    points = state_of(tmp_path / "out")
    assert took >= 1.5 and {point["state"] for point in points.values()} == {"missing"}
    assert points["a"]["reason"] == "no result by the deadline of 1500ms"
    assert points["later"]["reason"].endswith("(before: no worker yet)")
    # The worker is free again: what nobody wants any more was stopped.
    assert fleet(study_file(tmp_path, rounds=1), "--points", "a", "--deadline", "20s", out="next") == 0


def test_a_result_that_is_too_large_is_not_transferred(dask: Processes) -> None:
    from tcptoll.fleet.on_dask import DaskExecutor

    def lies(message: dict[str, Any], topic: str) -> object:
        class Huge:
            def __sizeof__(self) -> int:
                return 10_000_000_000

        return Huge() if message["point"] == "a" else None

    executor = DaskExecutor(dask.address, measure=lies)
    try:
        executor.submit(plan_of("a").work("a", 1, "t", 9.0, 1.0))
        event: Event | None = None
        while event is None:
            event = executor.next_event(1.0)
        assert event == Failure("a", "its result has 10000 MB; the limit is 64 MiB")
    finally:
        executor.close(1.0)


def test_two_workers_of_one_name_are_one_point(
    dask: Processes, fleet: Callable[..., int], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dask._start("c-too", "worker", dask.address, "--vantage", "c")
    try:
        assert fleet(study_file(tmp_path, rounds=2), "--points", "c") == 0
        assert state_of(tmp_path / "out")["c"]["attempts"] == 1
        assert "warning: 2 workers have the name c;" in capfd.readouterr().err
    finally:
        dask.kill("c-too")


def test_tls_and_a_scheduler_that_goes_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCPTOLL_BINARY", environment(tmp_path)["TCPTOLL_BINARY"])
    ours, theirs = _authority(tmp_path / "ours"), _authority(tmp_path / "theirs")
    processes = Processes(tmp_path, *ours)
    try:
        worker = processes.begin("a")["a"]
        address = ["--scheduler", processes.address]
        study = str(study_file(tmp_path, rounds=1))
        assert processes.address.startswith("tls://")
        assert arguments.fleet(["run", study, *address, *ours, "--out", str(tmp_path / "out")]) == 0
        for options in ([], theirs):
            with pytest.raises(TcptollError, match="are the --tls options the same on both sides"):
                arguments.fleet(["run", study, *address, *options, "--out", str(tmp_path / "refused")])
        study = str(study_file(tmp_path, rounds=1, trial=30))
        scheduler = processes.alive["scheduler"]
        threading.Timer(0.5, lambda: scheduler.send_signal(signal.SIGKILL)).start()
        with pytest.raises(TcptollError, match=r"a: the scheduler tls://\S+ closed the connection"):
            arguments.fleet(["run", study, *address, *ours, "--out", str(tmp_path / "gone")])
        assert worker.wait(20) == 1
    finally:
        processes.close()


def test_only_a_part_of_tls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TcptollError, match="missing: --tls-cert, --tls-key"):
        security(str(tmp_path), None, None)
    with pytest.raises(TcptollError, match="--tls-ca /none cannot be read: No such file"):
        security("/none", "/none", "/none")


def _replace(dask: Processes, out: Path, name: str) -> None:
    """Kills a worker that has measured something, and starts another of that name."""
    while True:
        time.sleep(0.05)
        try:
            if json.loads((out / "fleet.json").read_text(encoding="utf-8"))["points"][name]["done"] >= 3:
                break
        except (OSError, KeyError):
            continue
    dask.kill(name)
    dask.worker(name)


def _header(path: Path) -> dict[str, Any]:
    header = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    assert isinstance(header, dict)
    return header


def _authority(folder: Path) -> list[str]:
    """The options for a certificate of an authority that exists for this test."""
    folder.mkdir()
    new = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    names = ["-subj", "/CN=fleet", "-addext", "subjectAltName=IP:127.0.0.1"]
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run([*new, *names, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    return ["--tls-ca", str(certificate), "--tls-cert", str(certificate), "--tls-key", str(key)]

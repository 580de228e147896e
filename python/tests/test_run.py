"""`run` refuses what the program would refuse, passes progress on, and gives the record back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tcptoll
from tcptoll import BinaryNotFoundError, TcptollError, _binary
from tcptoll._options import OF_EVERY_RUN, command_line

OPTIONS: list[dict[str, Any]] = [
    {"name": "link", "value": "LINK", "levels": "each"},
    {"name": "count", "value": "N", "levels": "each"},
    {"name": "first-byte", "value": "on,off", "levels": "each"},
    {"name": "ipv6", "levels": "flag"},
    {"name": "to", "value": "HOST:PORT", "levels": "one"},
    {"name": "bind", "value": "ADDRESS,…", "levels": "one"},
    {"name": "client-sysctl", "value": "NAME=VALUE", "levels": "together"},
    {"name": "url", "value": "URL", "levels": "arguments"},
    {"name": "concurrency", "aliases": ["connections"], "value": "N", "levels": "each"},
]
EXPERIMENTS: list[dict[str, Any]] = [
    {"name": "connect", "target": "to", "options": OPTIONS},
    {"name": "stream", "target": None, "options": OPTIONS},
]


def line(experiment: str = "connect", *servers: str, **options: Any) -> list[str]:
    return command_line(EXPERIMENTS, experiment, servers, options)[1:]


def test_keywords_become_options() -> None:
    assert line(count=1000, link="metro", max_rounds=3) == ["--count=1000", "--link=metro", "--max-rounds=3"]
    assert line(link=["same-room", "metro"]) == ["--link=same-room,metro"]
    assert line(link=["same-room", "rtt=3ms,jitter=1ms"]) == ["--link=same-room", "--link=rtt=3ms,jitter=1ms"]
    assert line(ipv6=True, first_byte=[True, False]) == ["--ipv6", "--first-byte=on,off"]
    assert line(ipv6=False, count=None, connections=2) == ["--connections=2"]
    assert line(client_sysctl=["a=1", "b=2"]) == ["--client-sysctl=a=1", "--client-sysctl=b=2"]
    assert line(bind=["127.0.0.2", "127.0.0.3"]) == ["--bind=127.0.0.2,127.0.0.3"]
    assert line(fail_if=["p99 > 5ms", "errors > 0"]) == ["--fail-if=p99 > 5ms", "--fail-if=errors > 0"]
    assert line("connect", "-x", url=["a", Path("b")]) == ["--", "-x", "a", "b"]


@pytest.mark.parametrize(
    ("message", "experiment", "options"),
    [
        ("no experiment 'conect'; did you mean 'connect'?", "conect", {}),
        ("no option 'cuont'; did you mean 'count'?", "connect", {"cuont": 1}),
        ("no option 'max_ronds'; did you mean 'max_rounds'?", "connect", {"max_ronds": 1}),
        ("no option 'dry_run'", "connect", {"dry_run": True}),
        ("write True or False", "connect", {"ipv6": "yes"}),
        ("it takes N", "connect", {"count": True}),
        ("to takes one value, and 2 are given", "connect", {"to": ["a:1", "b:1"]}),
        ("one level at least", "connect", {"count": []}),
        ("neither text nor a number", "connect", {"count": [{}]}),
        ("in the lab only", "stream", {"url": "http://a"}),
    ],
)
def test_a_wrong_option_is_refused_before_anything_runs(
    message: str, experiment: str, options: dict[str, Any]
) -> None:
    with pytest.raises(TcptollError) as caught:
        line(experiment, **options)
    assert message in str(caught.value) and caught.value.exit_status is None


FAKE = """#!{python}
import json, shutil, sys
arguments = sys.argv[1:]
if arguments[:2] == ["schema", "experiments"]:
    print(json.dumps({experiments}))
    sys.exit()
sys.stderr.write("round 1 of 1" + (" on a terminal" if sys.stderr.isatty() else "") + "\\n")
if "--count=2" in arguments:
    sys.exit("error: --count 2: nothing was\\n  measured\\n\\nmore")
out = next(one for one in arguments if one.startswith("--out="))
shutil.copy({record!r}, out.removeprefix("--out="))
sys.exit(1 if "--count=3" in arguments else 0)
"""


@pytest.fixture
def fake(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that measures nothing: it copies a record, or fails."""
    path = tmp_path / "tcptoll"
    record = str(folder / "connect.jsonl")
    path.write_text(FAKE.format(python=sys.executable, experiments=EXPERIMENTS, record=record))
    path.chmod(0o755)
    monkeypatch.setenv("TCPTOLL_BINARY", str(path))
    return path


@pytest.mark.usefixtures("fake")
def test_a_run_gives_its_record_and_passes_progress_on(capfd: pytest.CaptureFixture[str]) -> None:
    record = tcptoll.run("connect", count=1)
    assert (record.experiment, record.exit_status, len(record.trials(engine="rows"))) == ("connect", 0, 1)
    assert capfd.readouterr().err == "round 1 of 1\n"
    path = record.path
    assert path.exists()
    del record
    assert not path.exists(), "the temporary folder goes with the record"


@pytest.mark.usefixtures("fake")
def test_records_go_to_the_folder_that_is_named_and_none_replaces_another(tmp_path: Path) -> None:
    out = tmp_path / "runs" / "today"
    paths = {tcptoll.run("connect", out=out).path for _ in range(3)}
    assert len(paths) == 3 and {path.parent for path in paths} == {out}
    assert tcptoll.run("connect", out=out / "x.jsonl").path == out / "x.jsonl"


@pytest.mark.usefixtures("fake")
def test_a_run_that_missed_a_limit_gives_its_record_and_says_so() -> None:
    assert tcptoll.run("connect", count=3).exit_status == 1


@pytest.mark.usefixtures("fake")
def test_a_run_that_failed_raises_the_sentence_of_the_program() -> None:
    with pytest.raises(TcptollError) as caught:
        tcptoll.run("connect", count=2)
    assert (str(caught.value), caught.value.exit_status) == ("--count 2: nothing was measured", 1)


def test_a_run_on_a_terminal_shows_its_progress_there(fake: Path) -> None:
    import pty

    reader, writer = pty.openpty()
    code = "import tcptoll; tcptoll.run('connect', count=1)"
    environment = {**os.environ, "PYTHONPATH": str(Path(tcptoll.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code], stderr=writer, env=environment, check=True)
    assert b"round 1 of 1 on a terminal" in os.read(reader, 4096)
    os.close(reader)
    os.close(writer)


def test_a_program_that_is_not_there_is_named_with_the_remedy(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TCPTOLL_BINARY", str(tmp_path / "none"))
    with pytest.raises(BinaryNotFoundError, match="TCPTOLL_BINARY="):
        tcptoll.run("connect")
    monkeypatch.delenv("TCPTOLL_BINARY")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    record = tcptoll.Record(folder / "connect.jsonl")
    with pytest.raises(BinaryNotFoundError, match="pip install tcptoll"):
        record.arms(engine="rows")
    assert "No report" in record._repr_html_()


def test_the_program_next_to_python_is_found_before_that_in_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TCPTOLL_BINARY", raising=False)
    for name in ("path", "venv"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tcptoll").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "venv/python"))
    assert _binary.find() == str(tmp_path / "venv/tcptoll")
    (tmp_path / "venv/tcptoll").unlink()
    assert _binary.find() == str(tmp_path / "path/tcptoll")


@pytest.mark.usefixtures("program")
def test_the_program_refuses_a_level_and_its_sentence_is_raised() -> None:
    with pytest.raises(TcptollError) as caught:
        tcptoll.run("connect", count="x", quiet=True)
    assert caught.value.exit_status == 2 and str(caught.value).startswith("--count x: ")


def test_every_experiment_has_the_options_that_the_schema_does_not_list(program: str) -> None:
    experiments = _binary.experiments()
    assert len(experiments) > 5
    for one in experiments:
        said = subprocess.run([program, one["name"], "--help"], capture_output=True, text=True, check=True)
        for name in OF_EVERY_RUN:
            assert f"--{name} " in said.stdout, (one["name"], name)


def test_python_m_prints_what_it_offers_and_refuses_the_rest() -> None:
    environment = {**os.environ, "PYTHONPATH": str(Path(tcptoll.__file__).parents[1])}

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tcptoll", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    offered = typed()
    assert (offered.returncode, offered.stderr) == (0, "") and "binary" in offered.stdout
    unknown = typed("flet")
    assert unknown.returncode == 2 and "no command 'flet'" in unknown.stderr
    assert typed("binary", "x").returncode == 2

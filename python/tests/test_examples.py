"""The examples run on real records."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT

import tcptoll


def ran(example: str, cwd: Path, *arguments: str) -> str:
    """What an example prints."""
    environment = {**os.environ, "PYTHONPATH": str(Path(tcptoll.__file__).parents[1])}
    line = [sys.executable, str(ROOT / "examples" / example), *arguments]
    done = subprocess.run(line, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("program")
def test_the_script_prints_rounds_distributions_and_verdicts(folder: Path, tmp_path: Path) -> None:
    said = ran("records.py", tmp_path, str(folder / "connect_rounds.jsonl"))
    assert "backlog 4096: connect_us_p50 of 5 rounds: " in said
    assert "backlog 4096: 200 connections, median " in said
    assert "backlog 4096 against backlog 4, " in said
    assert (tmp_path / "records.html").exists()


@pytest.mark.usefixtures("program")
def test_the_notebook_runs_as_a_script(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("marimo")
    ran("records_notebook.py", tmp_path, str(folder / "connect_rounds.jsonl"))

"""Damaged and hostile records are named and left out; nothing of theirs is run, and memory is bounded."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import lines_of, written

import tcptoll._lines
from tcptoll import Record, RecordError, Records

Line = dict[str, Any]
HEADER, TRIAL = list(lines_of("connect_rounds"))[:2]


def with_(path: str, value: Any) -> Line:
    """The trial with another value at a path like `arm.metrics`."""
    trial: Line = json.loads(json.dumps(TRIAL))
    *parents, last = path.split(".")
    holder = trial
    for parent in parents:
        holder = holder[parent]
    holder[last] = value
    return trial


WRONG: dict[str, Callable[[], Line]] = {
    "`arm` is missing": lambda: {"line": "trial", "round": 0},
    "`arm` is not an object": lambda: with_("arm", 7),
    "`arm.name` is not text": lambda: with_("arm.name", ["x"]),
    "`round` is not a whole number": lambda: with_("round", "0"),
    "at most 1000 rounds": lambda: with_("round", 10**9),
    "`began_s` is": lambda: with_("began_s", -1),
    "`took_s` is not a finite number": lambda: with_("took_s", True),
    "`arm.attempts` is larger than": lambda: with_("arm.attempts", 2**64),
    "`arm.ok` is not a whole number": lambda: with_("arm.ok", 1.5),
    "`arm.errors.x` is not": lambda: with_("arm.errors", {"x": "many"}),
    "`invalid` is not text": lambda: with_("invalid", 1),
    "`arm.partial` is neither": lambda: with_("arm.partial", "no"),
    "`arm.metrics.m` is not an object": lambda: with_("arm.metrics", {"m": 1}),
    "`arm.metrics.m.value` is not a finite": lambda: with_("arm.metrics", {"m": {"value": "NaN", "unit": "", "n": 1}}),
    "`arm.metrics.m.value` is missing": lambda: with_("arm.metrics", {"m": {"value": None, "unit": "", "n": 1}}),
    "`arm.histograms.h.count` is missing": lambda: with_("arm.histograms", {"h": {}}),
    "`arm.histograms.h.hdr` is not text": lambda: with_("arm.histograms", {"h": {"count": 1, "hdr": []}}),
    "`arm.series.s.points` is not a list": lambda: with_("arm.series", {"s": {"points": 1}}),
    "not four numbers": lambda: with_("arm.series", {"s": {"points": [[1, 2, 3]]}}),
    "has 101 factors": lambda: with_("arm.factors", {str(n): "x" for n in range(101)}),
}


@pytest.fixture
def file(tmp_path: Path) -> Callable[..., Path]:
    """Writes a file of lines."""

    def write(*lines: Line | str | bytes) -> Path:
        path = tmp_path / "run.jsonl"
        as_bytes = [written(line).encode() if isinstance(line, dict) else line for line in lines]
        path.write_bytes(b"".join(one.encode() if isinstance(one, str) else one for one in as_bytes))
        return path

    return write


@pytest.mark.parametrize(("reason", "line"), WRONG.items(), ids=WRONG.keys())
def test_a_wrong_type_is_refused_with_its_line_and_name(
    file: Callable[..., Path], reason: str, line: Callable[[], Line]
) -> None:
    path = file(HEADER, TRIAL, line())
    with pytest.raises(RecordError) as caught:
        Record(path)
    assert (caught.value.path, caught.value.line) == (str(path), 3)
    assert reason in caught.value.reason and "Restore the file" in str(caught.value)


NOT_JSON = {
    "half an object": b'{"line":"trial"\n',
    "NaN": b'{"line":"trial","round":NaN}\n',
    "infinity": b'{"line":"trial","round":-Infinity}\n',
    "not UTF-8": b'{"line":"trial","x":"\xff"}\n',
    "half a surrogate pair": b'{"line":"trial","x":"\\ud800"}\n',
    "nested too deeply": b"[" * 200_000 + b"]" * 200_000 + b"\n",
    "a number of 10,000 digits": b'{"line":"trial","round":' + b"9" * 10_000 + b"}\n",
    "a list": b"[1]\n",
    "an object without kind": b"{}\n",
    "a pickle": b"\x80\x04\x95\n",
}


@pytest.mark.parametrize("line", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_what_is_not_a_line_is_refused_with_its_number(file: Callable[..., Path], line: bytes) -> None:
    with pytest.raises(RecordError) as caught:
        Record(file(HEADER, line, TRIAL))
    assert caught.value.line == 2


def test_a_number_too_large_for_a_float_is_refused(file: Callable[..., Path]) -> None:
    for number in ("1e999", "1" + "0" * 400):
        line = written(TRIAL).replace('"took_s":', f'"took_s":{number},"x":', 1)
        with pytest.raises(RecordError, match="took_s"):
            Record(file(HEADER, line))


def test_a_line_longer_than_any_record_has_is_refused_unread(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcptoll._lines, "LINE_MAX", 1 << 16)
    with pytest.raises(RecordError, match="line 2: it is longer than"):
        Record(file(HEADER, "[" * (1 << 20)))


def test_a_long_summary_is_passed_over_whole_or_torn(
    file: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tcptoll._lines, "LINE_MAX", 1 << 16)
    summary = '{"line":"summary","x":"' + "a" * (1 << 18) + '"}'
    for end, torn in (("\n", False), ("", True)):
        record = Record(file(HEADER, TRIAL, summary + end))
        assert (len(record.trials(engine="rows")), record.torn) == (1, torn)
    assert len(Record(file(HEADER, summary + "\n", TRIAL)).trials(engine="rows")) == 1


def test_a_file_larger_than_any_record_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.touch()
    os.truncate(path, (1 << 30) + 1)
    with pytest.raises(RecordError, match="larger than 1024 MiB"):
        Record(path)


def test_a_cut_last_line_is_left_out_and_the_rest_is_read(file: Callable[..., Path]) -> None:
    record = Record(file(HEADER, TRIAL, written(TRIAL)[:300]))
    assert record.torn and len(record.trials(engine="rows")) == 1


def test_a_newer_format_asks_for_a_newer_tcptoll(file: Callable[..., Path]) -> None:
    with pytest.raises(RecordError, match=r"version 3.*Use a newer tcptoll"):
        Record(file({**HEADER, "record_version": 3}))
    for version in (None, "2", 0, True):
        with pytest.raises(RecordError, match="record_version"):
            Record(file({**HEADER, "record_version": version}))


def test_unknown_fields_and_lines_are_ignored(file: Callable[..., Path]) -> None:
    later = {**with_("arm.telepathy", [1]), "colour": "blue"}
    record = Record(file(HEADER, later, {"line": "weather"}, {"line": "resumed"}))
    assert len(record.trials(engine="rows")) == 1


def test_what_is_not_a_record_is_told_apart(file: Callable[..., Path]) -> None:
    watch = {"line": "watch-header", "record_version": 1}
    for content, reason in (
        ((watch,), "record of a watch"),
        (({"line": "merged", "record_version": 2},), "merged record of several vantage points"),
        (("hello\n",), "does not begin with the header"),
        ((), "it is empty"),
        ((written(HEADER)[:10],), "it is empty"),
        ((written(HEADER)[:40],), "it is empty"),
        ((TRIAL,), "does not begin with the header"),
    ):
        with pytest.raises(RecordError, match=reason):
            Record(file(*content))


def test_a_pipe_or_a_folder_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    for path in (tmp_path / "pipe.jsonl", tmp_path):
        with pytest.raises(RecordError, match="not a regular file"):
            Record(path)


def test_a_folder_with_damaged_records_gives_the_others_and_names_each(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes((folder / "connect.jsonl").read_bytes())
    (tmp_path / "b.jsonl").write_text("hello\n")
    (tmp_path / "c.jsonl").symlink_to("nowhere")
    (tmp_path / "d.jsonl").write_text(written(HEADER) + "{\n" + written(TRIAL))
    records = Records(str(tmp_path / "*.jsonl"))
    assert [Path(record.path).name for record in records] == ["a.jsonl"]
    assert [Path(path).name for path, _ in records.skipped] == ["b.jsonl", "c.jsonl", "d.jsonl"]
    assert "line 2" in records.skipped[2].reason
    assert {row["record"] for row in records.metrics(engine="rows")} == {str(tmp_path / "a.jsonl")}


def test_a_pattern_that_matches_nothing_is_an_error(tmp_path: Path) -> None:
    for source in (tmp_path, tmp_path / "none.jsonl", str(tmp_path / "*.jsonl")):
        with pytest.raises(FileNotFoundError, match="no record matches"):
            Records(source)


def test_a_name_with_control_characters_cannot_reach_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[31mred.jsonl"
    path.write_text("hello\n")
    with pytest.raises(RecordError) as caught:
        Record(path)
    assert str(caught.value).isprintable()
    trial = with_("arm.metrics", {"\x1b[2J": {}})
    path.write_text(written(HEADER) + written(trial))
    with pytest.raises(RecordError) as caught:
        Record(path)
    assert str(caught.value).isprintable()


def test_a_path_that_is_not_utf_8_can_be_in_a_table(folder: Path, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff.jsonl"
    with open(path, "wb") as file:
        file.write((folder / "connect.jsonl").read_bytes())
    records = Records(tmp_path)
    assert records.trials(engine="polars")["record"][0].endswith("�.jsonl")
    assert records.trials(engine="pandas")["record"][0].endswith("�.jsonl")

"""The ledger's file: what counts as damage, what as an interrupted write, and when an append is sealed."""

import errno
import json
import os
import stat
import subprocess
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choral.core import sealed
from choral.core.errors import LedgerError, StorageError
from choral.core.sealed import Chain, Receipt, parse

HEADER = {"choral": "ledger", "version": 1}


def written(folder: Path, *bodies: dict) -> Path:
    path = folder / "some.ledger"
    writer, _ = Chain.open(path, first=HEADER)
    with closing(writer):
        for body in bodies:
            writer.append(body)
    return path


@pytest.fixture
def three_lines(tmp_path):
    return written(tmp_path, {"kind": "charge", "round": 1}, {"kind": "charge", "round": 2})


def test_a_line_is_the_sha256_of_the_seal_before_it_a_space_and_its_body(three_lines):
    previous = "0" * 64  # recomputed with hashlib alone, as docs/ledger.md says
    for text in three_lines.read_text().splitlines():
        seal, body = text.split(" ", 1)
        assert seal == sha256(f"{previous} {body}".encode()).hexdigest()
        assert json.dumps(json.loads(body), sort_keys=True, separators=(",", ":")) == body
        previous = seal


def test_the_shell_loop_of_the_docs_agrees_and_finds_a_changed_line(three_lines):
    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    loop = page.split("```bash\n", 1)[1].split("```", 1)[0]

    def check() -> str:
        return subprocess.run(
            ["bash", "-c", loop.replace("site-a.ledger", str(three_lines))], check=True, capture_output=True, text=True
        ).stdout

    assert check().strip() == f"all lines fit; the last seal is {three_lines.read_text().splitlines()[-1][:64]}"
    three_lines.write_text(three_lines.read_text().replace('"round":1', '"round":7'))
    assert check().splitlines()[0] == "line 2 does not fit"


def test_every_change_of_one_byte_to_any_other_value_is_damage(tmp_path):
    data = written(tmp_path, {"kind": "charge", "round": 1}).read_bytes()
    for at in range(len(data)):
        for value in range(256):
            if value != data[at]:
                with pytest.raises(LedgerError, match="CH400"):
                    parse(data[:at] + bytes([value]) + data[at + 1 :], "x")


def test_one_byte_more_or_less_inside_the_chain_is_damage(three_lines):
    data = three_lines.read_bytes()
    for at in range(len(data)):
        with pytest.raises(LedgerError, match="CH400"):
            parse(data[:at] + b"7" + data[at:], "x")
        if at < len(data) - 1:  # without its last byte, the line end, the file is one that was cut short
            shorter = data[:at] + data[at + 1 :]
            if shorter != data[:-1]:
                with pytest.raises(LedgerError, match="CH400"):
                    parse(shorter, "x")


def test_an_end_that_is_nested_deeper_than_any_line_is_damage(three_lines):
    with three_lines.open("ab") as file:
        file.write(b"0" * 64 + b' {"a":' + b"[" * 100_000)
    with pytest.raises(LedgerError, match="CH400"):
        sealed.read(three_lines)


def test_lines_swapped_repeated_or_taken_out_are_damage(three_lines):
    first, second, third = three_lines.read_bytes().splitlines(keepends=True)
    for lines in ([first, third], [first, third, second], [second, third], [first, second, second], [first, first]):
        with pytest.raises(LedgerError, match="CH400"):
            parse(b"".join(lines), "x")


@pytest.mark.parametrize("zeros", [0, 1, 4096])
def test_a_file_cut_anywhere_gives_exactly_its_whole_lines(three_lines, zeros):
    data = three_lines.read_bytes()
    ends = [at + 1 for at, byte in enumerate(data) if byte == ord("\n")]
    for length in range(len(data) + 1):
        cut = data[:length] + bytes(zeros)
        whole = sum(end <= length for end in ends)
        lacks_line_end = length + 1 in ends
        if whole == 0:
            with pytest.raises(LedgerError, match="CH400"):  # a chain is made in one step: never without its first line
                parse(cut, "x")
        elif lacks_line_end and zeros:
            with pytest.raises(LedgerError, match="CH400"):  # a changed line end looks the same, so this one is refused
                parse(cut, "x")
        else:
            lines = parse(cut, "x")
            assert len(lines.bodies) == whole + lacks_line_end
            assert lines.ended is not lacks_line_end
            assert lines.size + lines.torn == len(cut)


@given(at=st.integers(0, 10_000), noise=st.binary(min_size=1, max_size=40))
@settings(max_examples=300)
def test_bytes_thrown_in_never_add_an_entry_or_lose_one_in_silence(at, noise):
    data = b""
    for body in (HEADER, {"round": 1}, {"round": 2}):
        data += sealed.line(data.splitlines()[-1][:64] if data else sealed.START, body)
    at %= len(data) + 1
    try:
        lines = parse(data[:at] + noise + data[at:], "x")
    except LedgerError as error:
        assert error.code == "CH400"
    else:  # only what can be the beginning of a fourth line, after the third
        assert at == len(data)
        assert len(lines.bodies) == 3
        assert lines.torn == len(noise)


def test_a_sealed_line_that_is_no_json_object_is_damage():
    for body in (b"[]", b"7", b"{", b"", b"[" * 100_000):
        with pytest.raises(LedgerError, match="CH400"):
            parse(sealed.seal(sealed.START, body) + b" " + body + b"\n", "x")


def test_an_interrupted_line_is_cut_off_at_the_next_opening_and_the_chain_goes_on(three_lines):
    whole = three_lines.read_bytes()
    for length in range(1, 60, 7):
        three_lines.write_bytes(whole + whole[:length])
        writer, lines = Chain.open(three_lines)
        with closing(writer):
            assert (lines.torn, len(lines.bodies)) == (length, 3)
            assert three_lines.read_bytes() == whole
            assert writer.append({"round": 3}).entries == 4


def test_a_line_that_lacks_only_its_line_end_counts_and_gets_it(three_lines):
    whole = three_lines.read_bytes()
    three_lines.write_bytes(whole[:-1])
    writer, lines = Chain.open(three_lines)
    with closing(writer):
        assert (len(lines.bodies), lines.ended) == (3, False)
        assert three_lines.read_bytes() == whole
        writer.append({"round": 3})
    assert len(parse(three_lines.read_bytes(), "x").bodies) == 4


def test_a_chain_cut_at_a_line_end_verifies_but_not_against_its_receipt(three_lines):
    writer, lines = Chain.open(three_lines)
    writer.close()
    first, second, _ = three_lines.read_bytes().splitlines(keepends=True)
    three_lines.write_bytes(first + second)
    assert len(sealed.read(three_lines).bodies) == 2
    for receipt in (
        lines.receipt,
        Receipt(entries=2, seal="f" * 64),
        Receipt(entries=0, seal=""),
        Receipt(entries=-1, seal=""),
    ):
        with pytest.raises(LedgerError, match="CH402"):
            Chain.open(three_lines, receipt=receipt)
    assert three_lines.read_bytes() == first + second


def test_a_line_with_a_receipt_that_lost_its_end_is_missed_and_nothing_is_cut_off(three_lines):
    receipt = sealed.read(three_lines).receipt
    cut = three_lines.read_bytes()[:-20]
    three_lines.write_bytes(cut)
    with pytest.raises(LedgerError, match="CH402"):
        Chain.open(three_lines, receipt=receipt)
    assert three_lines.read_bytes() == cut


def test_making_a_ledger_never_replaces_one_that_another_process_has_just_made(three_lines, tmp_path):
    before = three_lines.read_bytes()
    sealed._create(three_lines, sealed.line(sealed.START, HEADER))
    assert three_lines.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_a_receipt_of_any_earlier_line_is_continued(three_lines):
    lines = sealed.read(three_lines)
    for number, seal in enumerate(lines.seals, start=1):
        assert sealed.read(three_lines, Receipt(entries=number, seal=seal)).receipt == lines.receipt


def test_a_ledger_that_vanished_is_not_made_anew_when_there_is_a_receipt(tmp_path):
    with pytest.raises(LedgerError, match="CH402"):
        Chain.open(tmp_path / "gone", first=HEADER, receipt=Receipt(entries=3, seal="a" * 64))
    assert not list(tmp_path.iterdir())
    with pytest.raises(StorageError, match="CH802"):
        Chain.open(tmp_path / "gone")


def test_a_second_writer_is_refused_until_the_first_is_done(three_lines):
    writer, _ = Chain.open(three_lines)
    with pytest.raises(LedgerError, match="CH404"):
        Chain.open(three_lines)
    writer.close()
    Chain.open(three_lines)[0].close()
    with pytest.raises(LedgerError, match="CH404"):
        writer.append({"round": 3})


def test_a_file_changed_or_replaced_under_the_writer_gets_nothing_more(three_lines, tmp_path):
    copy = three_lines.read_bytes()
    writer, _ = Chain.open(three_lines)
    (tmp_path / "old").write_bytes(copy)
    (tmp_path / "old").replace(three_lines)
    with pytest.raises(LedgerError, match="CH400"):
        writer.append({"round": 3})
    assert three_lines.read_bytes() == copy
    writer, _ = Chain.open(three_lines)
    with three_lines.open("ab") as other:
        other.write(b"x")
    with pytest.raises(LedgerError, match="CH400"):
        writer.append({"round": 3})
    assert three_lines.read_bytes() == copy + b"x"


def test_an_append_writes_then_flushes_then_returns_and_creation_flushes_the_folder_too(tmp_path, monkeypatch):
    calls = []
    for name in ("write", "fsync", "link"):
        real = getattr(os, name)

        def spy(*given, name=name, real=real):
            on_folder = name == "fsync" and stat.S_ISDIR(os.fstat(given[0]).st_mode)
            calls.append("fsync folder" if on_folder else name)
            return real(*given)

        monkeypatch.setattr(sealed.os, name, spy)
    writer, _ = Chain.open(tmp_path / "a", first=HEADER)
    assert calls == ["write", "fsync", "link", "fsync folder"]
    calls.clear()
    writer.append({"round": 1})
    assert calls == ["write", "fsync"]
    writer.close()


@pytest.mark.parametrize("failing", ["write", "fsync"])
def test_a_disk_that_fails_closes_the_chain_and_leaves_it_readable(three_lines, monkeypatch, failing):
    before = three_lines.read_bytes()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    writer, _ = Chain.open(three_lines)
    with monkeypatch.context() as patch:
        patch.setattr(sealed.os, failing, full)
        with pytest.raises(StorageError, match="CH801"):
            writer.append({"round": 3})
    with pytest.raises(LedgerError, match="CH404"):
        writer.append({"round": 3})
    reopened, lines = Chain.open(three_lines)
    reopened.close()
    assert three_lines.read_bytes().startswith(before)
    assert (
        len(lines.bodies) == {"write": 3, "fsync": 4}[failing]
    )  # a line that reached the file counts: never too little


def test_short_writes_are_continued(three_lines, monkeypatch):
    real = os.write
    writer, _ = Chain.open(three_lines)
    with monkeypatch.context() as patch:
        patch.setattr(sealed.os, "write", lambda descriptor, data: real(descriptor, data[:5]))
        receipt = writer.append({"round": 3})
    writer.close()
    assert sealed.read(three_lines).receipt == receipt


def test_a_ledger_is_its_owners_alone_and_leaves_no_draft_behind(tmp_path):
    path = written(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(StorageError, match=r"CH801.*No such file"):
        Chain.open(tmp_path / "no" / "such", first=HEADER)

"""The live page of one side: what the server has, what a device has, and not a word of what only the other has."""

import json
import re

import pytest

from choral.accounting.words import up
from choral.cli import main
from choral.core.errors import ConfigError
from choral.record import read_run
from choral.report import serve
from choral.report.live import live_page, viewpoint_of
from tests.report.runs import epsilon, make_run
from tests.report.test_live import Stream


@pytest.fixture(params=[{}, {"finished": False, "done": 7}], ids=["ended", "under way"])
def record(request, tmp_path):
    return read_run(make_run(tmp_path / "run", **request.param))


def words_of(places):
    return " ".join(places.values()).replace("\xa0", " ")


def counts(record, what):
    return [sum(number in getattr(line, what) for line in record.rounds) for number in range(16)]


def test_all_pages_have_the_same_places(record):
    assert set(live_page(record)) == set(live_page(record, "server")) == set(live_page(record, 3))


def test_the_server_has_no_ledger_of_any_device(record):
    places = live_page(record, "server")
    spent = {f"{up(epsilon(count))} / 2.00" for count in counts(record, "cohort")}
    assert all(figure in words_of(live_page(record)) for figure in spent), "the whole page shows them"
    assert not any(figure in words_of(places) for figure in spent)
    assert "Spent so far" not in words_of(places)
    assert "ledger stays on the device" in places["budgets"]
    for number, (asked, included) in enumerate(zip(counts(record, "cohort"), counts(record, "included"), strict=True)):
        assert f"device {number + 1:02}</th><td>{asked}</td><td>{included}</td>" in places["budgets"]
    assert "adult-demo, as the server sees it" in places["title"]


def test_the_server_shows_what_it_received_and_never_what_a_device_computed(tmp_path):
    record = read_run(make_run(tmp_path / "run"))
    sight, places = record.result.sight, live_page(record, "server")
    assert f"{sight.received[0]:08x} {sight.received[1]:08x}" in places["sees"]
    assert not any(f"{value:+.4f}" in words_of(places) for value in sight.computed)
    assert all(f"{value:.3f}" in words_of(live_page(record)) for value in record.result.baselines.named().values())
    assert not any(f"{value:.3f}" in words_of(places) for value in record.result.baselines.named().values())


def test_a_device_has_its_own_ledger_its_own_rounds_and_nothing_of_the_rest(record):
    places = live_page(record, 3)
    own = counts(record, "cohort")[3]
    assert f"{up(epsilon(own))} / 2.00" in places["budgets"].replace("\xa0", " ")
    assert places["budgets"].count('scope="row"') == 1
    assert f"asked in {own} rounds, in the sum of {counts(record, 'included')[3]}" in places["progress"]
    asked = [line.round for line in record.rounds if 3 in line.cohort]
    assert f"Round {asked[-1]}:" in places["cohort"]
    assert [f"Round {number}:" in places["events"] for number in range(1, len(record.rounds) + 1)] == [
        number in asked for number in range(1, len(record.rounds) + 1)
    ]
    others = {epsilon(count) for count in counts(record, "cohort")} - {epsilon(own)}
    assert others
    assert not any(f"{up(other)} / 2.00" in words_of(places) for other in others)
    for line in record.rounds:
        assert f"{line.test['accuracy']:.3f}" not in words_of(places)
    assert "device 04, as" not in places["title"]
    assert "as device 04 sees it" in places["title"]


def test_what_a_device_has_spent_so_far_is_its_own(tmp_path):
    record = read_run(make_run(tmp_path / "run", finished=False, done=7))
    spent = record.rounds[-1].spent
    assert len(set(spent)) > 1
    for number, own in enumerate(spent):
        reported = live_page(record, number)["colluder-table"].replace("\xa0", " ")
        assert f"Spent so far: ε ≤ {up(own)} against" in reported


def test_a_device_names_the_rule_of_its_own_ledger_only(tmp_path):
    """A batch of all rows hides nobody, so that rule S1 counts; of a device with more rows it is a sample, as in S5."""
    folder = make_run(tmp_path / "run", finished=False, done=7)
    about = json.loads((folder / "run.json").read_text())
    about["plan"]["batch"] = about["plan"]["rows"]
    about["devices"][4]["rows"] = 2 * about["plan"]["rows"]
    (folder / "run.json").write_text(json.dumps(about))
    record = read_run(folder)
    for number, rules in ((3, {"S1"}), (4, {"S5"}), (None, {"S1", "S5"})):
        places = live_page(record, number)
        assert rules == set(re.findall(r"\bS[15]\b", places["budgets"])), number
        so_far = re.search(r"Spent so far.*?;", places["colluder-table"]).group()
        assert rules == set(re.findall(r"\bS[15]\b", so_far)), number


def test_a_device_that_was_never_asked_has_nothing_to_show_and_says_so(tmp_path):
    record = read_run(make_run(tmp_path / "run", finished=False, done=0))
    places = live_page(record, 0)
    assert "asked in 0 rounds" in places["progress"]
    assert "0.00 / 2.00" in places["budgets"]
    assert "No round is over yet" in places["cohort"]


def test_only_that_sides_markup_leaves_the_process(tmp_path):
    folder = make_run(tmp_path / "run")
    record = read_run(folder)
    with serve(folder, viewpoint="device:device 04") as page, Stream(page) as stream:
        places, _ = stream.until(lambda name, _: name == "end")
    assert places == live_page(record, 3)


@pytest.mark.parametrize("text", ["device:device 99", "devices", "device", "the server", ""])
def test_a_side_that_the_run_does_not_have_is_refused_with_those_it_has(text, tmp_path, capsys):
    folder = make_run(tmp_path / "run", devices=3)
    with pytest.raises(ConfigError, match=r"CH102 --as .*device 01, device 02, device 03"):
        viewpoint_of(text, read_run(folder).about)
    assert main(["watch", str(folder), "--as", text]) == 2
    assert "is no side of this run" in capsys.readouterr().err

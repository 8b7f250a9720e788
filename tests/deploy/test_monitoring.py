"""A site's log and ledger as Prometheus text, read back by Prometheus' own client library."""

import json

from prometheus_client.parser import text_string_to_metric_families

from choral.accounting.ledger_statement import statement_of
from choral.core.ledger import Ledger
from choral.deploy.status import logged_lines, metric, prometheus
from tests.run.consortium import Consortium


def read(text):
    """Every sample by its name and the labels that tell it from others."""
    return {
        (sample.name, sample.labels.get("event") or sample.labels.get("code") or ""): sample
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_the_text_agrees_with_the_log_and_the_ledger(ended_study):
    home = ended_study.homes["hill"]
    found = read(prometheus(home))
    lines = [json.loads(line) for line in (home.path / "log.jsonl").read_text().splitlines()]
    uploads = [line for line in lines if line["event"] == "upload"]
    assert len(uploads) == 3 == found["choral_events_total", "upload"].value
    assert found["choral_bytes_total", "upload"].value == sum(line["bytes"] for line in uploads)
    assert found["choral_last_round", ""].value == 3
    assert found["choral_agent_up", ""].value == 0
    spent = statement_of(Ledger.read(home.ledger_path)).to_dict()
    assert found["choral_epsilon_spent", ""].value == spent["spent"]["epsilon"]
    assert found["choral_charges_total", ""].value == 3


def test_no_epsilon_stands_without_its_rule_delta_adjacency_and_adversary(ended_study):
    for (name, _), sample in read(prometheus(ended_study.homes["hill"])).items():
        if "epsilon" in name:
            assert set(sample.labels) == {"device", "delta", "rule", "adjacency", "adversary"}
            assert all(sample.labels.values())


def test_a_home_that_has_only_joined_says_that_its_agent_is_down(tmp_path):
    made = Consortium(tmp_path)
    assert [name for name, _ in read(prometheus(made.homes["lake"]))] == ["choral_agent_up"]


def test_lines_that_a_power_cut_left_incomplete_are_passed_over(tmp_path):
    (tmp_path / "log").write_text('{"event": "started", "at": "2026-11-18T00:00:00+00:00"}\n{"eve\n[]\n{"event": 3}\n')
    assert [line["event"] for line in logged_lines(tmp_path / "log")] == ["started"]
    assert list(logged_lines(tmp_path / "none")) == []


def test_quotes_and_line_ends_in_a_label_are_escaped():
    lines = metric("a", "b.", [({"device": 'x"\\\ny'}, 2.5)])
    [family] = text_string_to_metric_families("\n".join(lines) + "\n")
    assert family.samples[0].labels == {"device": 'x"\\\ny'}
    assert family.samples[0].value == 2.5

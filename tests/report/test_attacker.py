"""The section on what an attacker reads: every figure as a reader sees it, with its terms, and no more than fits."""

from pathlib import Path

from choral.record import ShownAttack, converted
from choral.report.report_page import attacker_section
from tests.report.runs import attack


def section(**changes):
    return str(attacker_section(converted(attack() | changes, ShownAttack, Path("attack.json"))))


def test_the_limits_stand_with_epsilon_delta_rule_adjacency_and_adversary():
    shown = section(epsilon=1.005, delta=1e-5, rule="S5", adjacency="one record replaced", adversary="everyone")
    assert "ε\xa0≤\xa01.01 at" in shown  # rounded up
    assert "rule S5" in shown and "one record replaced; against everyone." in shown


def test_what_was_found_has_its_error_and_its_limit_rounded_up():
    found = [
        {"target": "a masked upload", "measured": 0.0512, "error": 0.004, "bound": 0.0501},
        {"target": "an ordinary update", "measured": 1.0, "error": 0.0, "bound": None},
    ]
    shown = section(membership=found, false_alarms=0.05)
    assert "5.1 ± 0.4 %" in shown and "5.1 %" in shown  # 5.01 % as a limit is 5.1 %
    assert "100.0 %" in shown and "no limit" in shown


def test_it_says_that_it_is_no_part_of_the_run():
    assert "It read nothing of this run, proves nothing about it, and choral verify does not vouch for it" in section()


def test_text_of_a_stranger_is_escaped_and_a_list_of_hundreds_is_cut():
    one = {"target": "<script>x</script>", "measured": 0.5, "error": 0.0, "bound": None}
    shown = section(membership=[one] * 300)
    assert shown.count("&lt;script&gt;") == 4 and "<script" not in shown

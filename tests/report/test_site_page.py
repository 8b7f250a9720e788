"""result.html of a site: true to the home, re-checked by its data, and without scripts or foreign hosts."""

import msgspec
import pytest

from choral.deploy.site_result import site_end
from choral.privacy.display import up
from choral.report import words
from choral.report.pages import carried_data
from choral.report.site_page import differences, site_page


@pytest.fixture
def end(ended_study):
    return site_end(ended_study.homes["hill"])


def test_the_page_agrees_with_the_home_that_wrote_it(end):
    assert differences(site_page(end), end) == []
    assert carried_data(site_page(end))[0]["paid"] == 3


@pytest.mark.parametrize(
    ("field", "value"), [("paid", 2), ("reserved", 0.1), ("model", "00" * 32), ("device", "lake"), ("ledger", "1:00")]
)
def test_a_changed_figure_is_found_by_name(end, field, value):
    page = site_page(msgspec.structs.replace(end, **{field: value}))
    assert differences(page, end) == [field]


def test_a_page_without_data_agrees_with_nothing(end):
    assert "paid" in differences("<main></main>", end)
    assert "paid" in differences('<main data-claims="[]"></main>', end)


def test_every_epsilon_on_the_page_stands_with_delta_rule_adjacency_and_adversary(end):
    text = site_page(end)
    assert f"ε ≤ {up(end.reserved)}" in text
    for part in (
        f"δ = {words.small(1e-4)}",
        "one record replaced",
        "rules S5",
        "against the server and all other devices together",
    ):
        assert part in text


def test_the_page_runs_no_script_and_names_no_host(end):
    text = site_page(end)
    assert "<script" not in text
    assert "http://" not in text.replace("http-equiv", "")
    assert "default-src" in text

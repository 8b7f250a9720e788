"""Which secure sum a run has is a setting; each kind runs the real protocol, and says what it is."""

import pytest

from choral.cli import main
from choral.config import FederationSettings, parse
from choral.core.errors import ConfigError, PlanError
from choral.run.planning import secure_sum_of

SETTINGS = """\
[privacy]
epsilon = 4.0
delta = 1e-4
[federation]
devices = 24
cohort = 20
rounds = 2
secure_sum = "KIND"
[local]
steps = 2
batch = 10
step_size = 0.5
clip = 1.0
[data]
csv = "rows.csv"
label = "ill"
[data.columns.age]
bounds = [0, 100]
"""


@pytest.fixture
def ready(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{20 + number % 70},{int(number % 70 > 30)}" for number in range(1200)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,ill", *rows]))

    def write(kind):
        (tmp_path / "choral.toml").write_text(SETTINGS.replace("KIND", kind))
        return tmp_path

    return write


@pytest.mark.parametrize("kind", ["complete", "sparse"])
def test_every_kind_of_sum_is_rehearsed_with_real_masks_and_verifies(kind, ready):
    folder = ready(kind)
    assert main(["rehearse", "choral.toml", "--out", "run", "--quiet"]) == 0
    assert main(["verify", "run"]) == 0
    assert "Updates are masked on the device" in (folder / "run" / "report.html").read_text()


def test_settings_that_a_kind_of_sum_can_not_have_are_refused():
    with pytest.raises(PlanError, match="no sparse graph on 5 devices"):
        secure_sum_of(FederationSettings(secure_sum="sparse"), 5)


def test_a_sparse_graph_with_more_colluders_than_it_withstands_is_refused_before_anything_is_planned():
    usual = secure_sum_of(FederationSettings(secure_sum="sparse"), 200)
    assert secure_sum_of(FederationSettings(secure_sum="sparse", colluders=usual.colluders), 200) == usual
    with pytest.raises(PlanError, match=r"CH205.*bits of privacy in a cohort of 200"):
        secure_sum_of(FederationSettings(secure_sum="sparse", colluders=60), 200)


@pytest.mark.parametrize("gone", ['secure_sum = "paper"', "packed = true"])
def test_forms_that_were_removed_are_refused_with_the_last_version_that_runs_them(gone):
    text = f"[privacy]\nepsilon = 2.0\n[federation]\n{gone}\n"
    with pytest.raises(ConfigError, match=r"CH101 .*was removed.*choral 0\.2 is the last version that runs it"):
        parse(text)
    assert parse(text, recorded=True).federation.secure_sum == "complete"

"""The study file: what both sides fix, how it is compared, and what is refused before anybody is enrolled."""

import itertools
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral import config
from choral.config.toml import to_toml
from choral.core.errors import ChoralError, ConfigError, PlanError, TableError, TrustError
from choral.core.keys import Identity
from choral.deploy.enrolment import read_card
from choral.deploy.home import Invitation
from choral.run.agreement import Agreement, Enrolled, check_deployable, columns_of
from choral.run.planning import settle
from tests.run.consortium import JOB, NAMES, Consortium


@pytest.fixture(scope="module")
def consortium(tmp_path_factory):
    return Consortium(tmp_path_factory.mktemp("study"))


def test_a_study_reads_back_as_it_was_made(consortium):
    made, text = consortium.agreement, (consortium.study / "study.toml").read_text()
    again = Agreement.of(text, "study.toml")
    assert again.digest == made.digest
    assert again.terms.digest == made.terms.digest
    assert again.text == text


def test_a_study_file_and_a_job_with_data_lead_to_the_same_study(consortium):
    job = JOB.replace(
        'label = "sick"', 'label = "sick"\nignore = ["name"]'
    )  # which no site reads, as nobody declared it
    here = settle(config.parse(job), str(consortium.folder / "*.csv"))
    deployed = consortium.agreement.settled
    for name in ("name", "plan", "secure", "codec", "limits", "participation"):
        assert getattr(here, name) == getattr(deployed, name), name
    # In the order of the table here, in the declared order there.
    assert set(here.data.columns) == set(deployed.data.columns)
    assert set(here.data.features) == set(deployed.data.features)
    assert here.data.classes == deployed.data.classes == ("no", "yes")
    assert here.data.records.names == deployed.data.records.names == NAMES
    assert here.model.size == deployed.model.size == consortium.agreement.terms.parameters
    # Of 80 rows each, 64 are trained on where they are all here; elsewhere only the 60 of the plan are known.
    assert (here.rows.tolist(), deployed.rows.tolist()) == ([64] * 3, [60] * 3)
    assert len(deployed.data.records.labels) == len(deployed.split.test.labels) == 0


def test_the_digest_covers_every_field(consortium):
    content = tomllib.loads(consortium.agreement.text)
    # Every leaf of the file, moved by a little: nobody can change a word without changing the safety number.
    changes = {
        ("name",): "heart",
        ("run",): "00" * 16,
        ("choral",): "9.9.9",
        ("address",): "127.0.0.1:9093",
        ("deadline",): 31.0,
        ("certificate",): content["certificate"].replace("A", "B", 1),
        ("job",): content["job"].replace("220", "230"),
        ("plan", "noise"): content["plan"]["noise"] * (1 - 1e-12),
        ("plan", "rounds"): 4,
        ("secure_sum", "modulus_bits"): 64,
        ("devices", 0, "node"): content["devices"][0]["node"] + "x",
    }
    seen = {consortium.agreement.digest}
    for path, value in changes.items():
        changed = tomllib.loads(consortium.agreement.text)
        place = changed
        for key in path[:-1]:
            place = place[key]
        assert place[path[-1]] != value, path
        place[path[-1]] = value
        try:
            seen.add(Agreement.of(to_toml(changed), "study.toml").digest)
        except ChoralError:
            seen.add(path)  # refused: just as good
    assert len(seen) == 1 + len(changes)


def test_a_run_has_a_name_of_its_own_even_for_the_same_plan_and_devices(consortium):
    first = consortium.agreement
    second = consortium.enrol()
    assert first.plan == second.plan
    assert first.roster == second.roster
    assert first.run_name != second.run_name
    assert first.terms.digest != second.terms.digest


def test_the_codec_is_computed_and_not_received_so_a_server_cannot_choose_a_coarse_grid(consortium):
    content = tomllib.loads(consortium.agreement.text) | {"codec": {"grid": 1.0}}
    with pytest.raises(ConfigError, match=r"CH102.*codec"):
        Agreement.of(to_toml(content), "study.toml")


@pytest.mark.parametrize(
    ("change", "error", "code"),
    [
        (("[run]", "[run]\nseed = 7"), PlanError, "CH203"),
        (("rows = 60", ""), ConfigError, "CH103"),
        (('classes = ["no", "yes"]', ""), TableError, "CH304"),
        (("bounds = [30, 220]", ""), TableError, "CH304"),
        (('label = "sick"', 'label = "sick"\nbuiltin = "adult"'), ConfigError, "CH104"),
        (('label = "sick"', 'label = "sick"\ndevice_column = "site"'), ConfigError, "CH104"),
        (("[federation]", "[privacy.limits]\nhill = 1.0\n[federation]"), ConfigError, "CH104"),
    ],
)
def test_a_job_that_a_deployment_must_refuse_says_why(change, error, code):
    text = JOB.replace(*change)
    assert text != JOB
    with pytest.raises(error, match=code):
        check_deployable(config.parse(text))


def test_columns_that_are_not_declared_at_all_are_refused():
    text = JOB.split("[data.columns.age]")[0] + '[run]\nname = "x"\n'
    with pytest.raises(TableError, match=r"CH304.*columns"):
        check_deployable(config.parse(text))


def test_columns_come_in_the_order_in_which_they_are_declared():
    assert [column.name for column in columns_of(config.parse(JOB))] == ["age", "pulse", "smokes"]


@pytest.mark.parametrize("field", ["format", "protocol"])
def test_another_version_is_refused(consortium, field):
    content = tomllib.loads(consortium.agreement.text) | {field: 99}
    with pytest.raises(TrustError, match="CH602"):
        Agreement.of(to_toml(content), "study.toml")


def test_a_key_that_nobody_signed_is_refused(consortium):
    content = tomllib.loads(consortium.agreement.text)
    content["devices"][0]["identity"], content["devices"][1]["identity"] = (
        content["devices"][1]["identity"],
        content["devices"][0]["identity"],
    )
    with pytest.raises(TrustError, match="CH606"):
        Agreement.of(to_toml(content), "study.toml")


def test_a_node_key_that_its_device_did_not_sign_is_refused(consortium):
    content = tomllib.loads(consortium.agreement.text)
    content["devices"][0]["node"] = content["devices"][1]["node"]
    with pytest.raises(TrustError, match=r"CH606.*node key"):
        Agreement.of(to_toml(content), "study.toml")


def test_a_text_that_is_no_key_of_a_node_is_refused_when_the_card_comes_though_its_device_signed_it(tmp_path):
    path = tmp_path / "hill.card"
    path.write_text(Enrolled.of(Identity.fresh("hill"), "ssh-rsa AAAA").text)
    with pytest.raises(TrustError, match=r"CH600.*node's key"):
        read_card(path)


@pytest.mark.parametrize("change", [{"rounds": None}, {"rounds": "many"}, {"speed": 9}])
def test_a_plan_that_lacks_a_number_or_has_one_too_many_is_refused(consortium, change):
    content = tomllib.loads(consortium.agreement.text)
    content["plan"] |= change
    with pytest.raises(ConfigError, match=r"CH102 plan has the wrong form"):
        Agreement.of(to_toml(content), "study.toml")


@pytest.mark.parametrize(
    ("change", "code"), [(("format = 2", "format = 9"), "CH602"), ((":9092", ""), "CH102"), (("=", ""), "CH100")]
)
def test_an_invitation_of_another_choral_or_to_nowhere_is_refused(consortium, tmp_path, change, code):
    path = tmp_path / "invitation.toml"
    path.write_text((consortium.study / "invitation.toml").read_text().replace(*change))
    with pytest.raises(ChoralError, match=code):
        Invitation.read(path)


def test_a_sum_below_the_safe_bound_is_refused_whoever_wrote_the_file(consortium):
    content = tomllib.loads(consortium.agreement.text)
    content["secure_sum"] |= {"smallest_sum": 2, "threshold": 1}
    with pytest.raises(PlanError, match="CH205"):
        Agreement.of(to_toml(content), "study.toml")


def test_garbage_is_refused_without_a_traceback(consortium):
    for text in ("", "x = ", "format = 1", consortium.agreement.text.replace("[plan]", "[plans]")):
        with pytest.raises(ConfigError, match="CH10"):
            Agreement.of(text, "study.toml")


plain = st.one_of(
    st.text(), st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False, allow_infinity=False)
)
keys = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
flat = st.dictionaries(keys, plain)


@given(st.dictionaries(keys, st.one_of(plain, flat, st.lists(flat, min_size=1, max_size=3))))
def test_whatever_is_written_as_toml_reads_back(content):
    assert tomllib.loads(to_toml(content)) == content


def test_a_site_encodes_each_row_by_itself(consortium, tmp_path):
    """Whatever stands in one row, the features and labels of all others keep every bit, or the table is refused."""
    agreement, path = consortium.agreement, tmp_path / "hill.csv"
    header, *lines = consortium.tables["hill"].read_text().splitlines()
    first = [part[1:].tobytes() for part in agreement.encoded(agreement.table_in(consortium.tables["hill"]))]
    read = 0
    for column, cell in itertools.product(
        range(header.count(",") + 1), ["NA", "27,5", "1e1", "no", "\xf6", '"', "", "0"]
    ):
        cells = lines[0].split(",")
        cells[column] = cell
        path.write_bytes("\n".join([header, ",".join(cells), *lines[1:]]).encode("latin-1"))
        try:
            found = agreement.encoded(agreement.table_in(path))
        except TableError:
            continue
        read += 1
        assert [part[1:].tobytes() for part in found] == first
    assert read > 5

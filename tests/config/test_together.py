"""Settings that go together, or are refused with the line and the way out: models on sums, and encoders."""

import pytest

from choral.asking.catalogue import read_model
from choral.config import parse
from choral.config.together import ON_SUMS, SHARE, rounds_of
from choral.core.errors import ChoralError
from choral.run.modelling import question_of
from choral.run.study import declared_columns

BASE = """\
privacy.epsilon = 2.0
[data]
label = "died"
classes = ["no", "yes"]
[data.columns]
age.bounds = [0, 100]
days.bounds = [0, 900]
"""
ADDITIVE = 'model.kind = "additive"\n' + BASE
HAZARD = 'model = { kind = "hazard", time = "days" }\n' + BASE


@pytest.mark.parametrize("text", [ADDITIVE, HAZARD])
@pytest.mark.parametrize("against", ["everyone", "server and colluders"])
def test_a_study_may_ask_for_the_sums_of_its_model_and_for_nothing_else(text, against):
    job = parse(f'privacy.against = "{against}"\n{text}')
    model = read_model(question_of(job), declared_columns(job))
    assert (job.ask.most, job.ask.names) == (model.sums, [job.model.kind])
    assert model.before == ON_SUMS[job.model.kind].before  # the table of usual numbers is that of the models
    said = (job.ask.epsilon, job.ask.epsilon_sum)
    assert said == ((2.0 * SHARE, None) if against == "everyone" else (None, 2.0 * SHARE))


def test_rounds_are_as_said_and_fewer_against_everyone():
    assert rounds_of(parse(ADDITIVE)) == 20
    assert rounds_of(parse('privacy.against = "server and colluders"\n' + ADDITIVE)) == 40
    assert rounds_of(parse("federation.rounds = 7\n" + ADDITIVE)) == 7


def test_what_a_study_allows_itself_is_kept():
    assert parse("ask.epsilon = 1.0\nask.most = 50\n" + ADDITIVE).ask.most == 50


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("CH104", "local.steps = 3\n" + ADDITIVE),
        ("CH104", 'model.time = "days"\n' + BASE),
        ("CH104", "model.hidden = [4]\n" + ADDITIVE),
        ("CH104", ADDITIVE.replace("epsilon = 2.0", "noise = 2.0")),
        (
            "CH104",
            'privacy.unit = "person"\n' + ADDITIVE.replace("[data]", '[data]\nperson = "who"\nrows_per_person = 2'),
        ),
        ("CH304", ADDITIVE.replace('"yes"]', '"yes", "perhaps"]')),
        ("CH304", ADDITIVE.partition("[data.columns]")[0]),
        ("CH103", 'model.kind = "hazard"\n' + BASE),
        ("CH103", HAZARD.replace('time = "days"', 'time = "weeks"')),
        ("CH102", 'model.kind = "addititive"\n' + BASE),
    ],
)
def test_what_such_a_model_lacks_or_has_no_use_for_is_refused(code, text):
    with pytest.raises(ChoralError, match=code):
        parse(text)


GOOD = """\
[privacy]
epsilon = 1.0
[data]
encoder = "onnx:models/public.onnx"
embedding_bounds = [-1, 1]
"""


def test_the_file_of_an_encoder():
    assert parse(GOOD).data.encoder_file == "models/public.onnx"
    assert parse("privacy.epsilon = 1.0").data.encoder_file == ""


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("onnx:models/public.onnx", "torch:public.pt", "CH102 choral.toml:4 data.encoder names no ONNX file"),
        ("onnx:models/public.onnx", "onnx:", "CH102 choral.toml:4 data.encoder names no ONNX file"),
        ("embedding_bounds = [-1, 1]\n", "", "CH304 choral.toml:4 .*an encoder and no embedding_bounds"),
        ('encoder = "onnx:models/public.onnx"\n', "", "CH104 choral.toml:4 .*has embedding_bounds and no encoder"),
        ("[-1, 1]\n", '[-1, 1]\nencoder_sha256 = "9f3c"\n', "CH102 choral.toml:6 .*Must be a SHA-256"),
        ("[-1, 1]\n", '[-1, 1]\ntext = "a"\n[data.columns.b]\nbounds = [0, 1]\n', "CH104 choral.toml:6 .*has text"),
        ("[data]\n", '[data]\nbuiltin = "adult"\n', 'CH104 choral.toml:5 .*builtin = "adult" and encoder'),
    ],
)
def test_settings_that_do_not_go_together_are_refused(old, new, refused):
    assert old in GOOD
    with pytest.raises(ChoralError, match=refused):
        parse(GOOD.replace(old, new))

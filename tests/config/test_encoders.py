"""The settings of an encoder go together, or are refused with the line and the way out."""

import pytest

from choral.config import parse
from choral.core.errors import ChoralError

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

"""Labels come back as what they were, wherever they came from."""

import numpy as np
import pandas
import pytest

import choral
from choral.tables.columns import typed

ROWS = np.linspace(-1, 1, 40)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["no", "yes"], ["no", "yes"]),
        ([0, 1], [0, 1]),
        ([3, 7], [3, 7]),
        ([False, True], [False, True]),
        ([0.5, 2.0], [0.5, 2.0]),
        (["0", "1"], ["0", "1"]),
    ],
    ids=str,
)
def test_the_classes_of_a_frame_keep_their_type(labels, classes):
    frame = pandas.DataFrame({"x": ROWS, "label": labels * 20})
    data = choral.load(frame, devices=2)
    found = typed(data.classes, data.label_type).tolist()
    assert found == classes and [type(one) for one in found] == [type(one) for one in classes]


def test_arrays_keep_theirs_and_named_classes_are_texts():
    codes = np.arange(40) % 2
    assert choral.load((ROWS[:, None], codes), devices=2).label_type == "whole number"
    assert choral.load((ROWS[:, None], codes == 1), devices=2).label_type == "truth"
    named = choral.load((ROWS[:, None], codes), devices=2, classes=["no", "yes"])
    assert (named.label_type, named.classes) == ("text", ("no", "yes"))


def test_a_file_has_whole_numbers_where_every_class_is_one(tmp_path):
    for labels, kind in (
        (("0", "1"), "whole number"),
        (("-1", "1"), "whole number"),
        (("0", "01"), "text"),
        (("a", "1"), "text"),
    ):
        lines = [f"{x},{labels[number % 2]}" for number, x in enumerate(ROWS)]
        (tmp_path / "t.csv").write_text("x,label\n" + "\n".join(lines) + "\n")
        assert choral.load(tmp_path / "t.csv", devices=2).label_type == kind

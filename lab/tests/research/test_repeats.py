"""Means, spreads and paired differences over the repeats."""

from choral_lab.research import compared, differences, paired


def test_differences_are_taken_repeat_by_repeat():
    reported = paired([0.86, 0.80], [0.85, 0.78])
    assert reported["each"] == [0.01, 0.02]
    assert reported["verdict"] == "above in every repeat"
    assert paired([0.86, 0.80], [0.80, 0.81])["verdict"] == "above on average"
    assert paired([0.80, 0.801], [0.80, 0.80])["verdict"] == "tie"


def test_lines_are_compared_at_the_look_that_is_asked_for_the_last_if_none_is():
    ours = [{"loss": [0.75, 0.5]}, {"loss": [0.5, 0.25]}]
    theirs = [{"loss": [0.5, 0.75]}, {"loss": [0.25, 0.5]}]
    assert differences(ours, theirs, ["loss"])["loss"]["each"] == [-0.25, -0.25]
    assert differences(ours, theirs, ["loss"], look=0)["loss"]["each"] == [0.25, 0.25]


def test_two_sets_of_values_are_reported_with_their_difference():
    reported = compared(narrow=[0.5, 0.75], wide=[0.25, 0.25])
    assert [reported[name]["each"] for name in ("narrow", "wide", "narrow_minus_wide")] == [
        [0.5, 0.75],
        [0.25, 0.25],
        [0.25, 0.5],
    ]

"""Differences over repeats, what they say of a claim, and the range in which they say it."""

from choral.research import judged, judged_over, paired, table

UP, DOWN = paired([0.85, 0.86], [0.84, 0.84]), paired([0.84, 0.84], [0.85, 0.86])
MIXED, TIE = paired([0.87, 0.84], [0.84, 0.85]), paired([0.85, 0.851], [0.85, 0.85])


def test_a_claim_holds_only_where_the_difference_has_its_sign_and_its_size():
    assert judged(UP, "above") == "holds, in every repeat"
    assert judged(MIXED, "above") == "holds on average only"
    assert judged(TIE, "above") == judged(TIE, "below") == "tie"
    assert judged(DOWN, "above") == "does not hold: the opposite, in every repeat"
    assert judged(MIXED, "below") == "does not hold: the opposite, on average"


def test_a_range_is_named_where_its_places_differ():
    assert judged_over("ε", {"0.5": UP, "1": UP}, "above") == "holds, in every repeat"
    told = judged_over("ε", {"0.25": UP, "0.5": UP, "1": UP, "2": MIXED, "10": TIE}, "above")
    assert told == "holds, in every repeat, at ε = 0.25, 0.5 and 1; holds on average only at ε = 2; tie at ε = 10"


def test_differences_are_taken_repeat_by_repeat():
    told = paired([0.86, 0.80], [0.85, 0.78])
    assert told["each"] == [0.01, 0.02]
    assert told["verdict"] == "above in every repeat"
    assert paired([0.86, 0.80], [0.80, 0.81])["verdict"] == "above on average"
    assert paired([0.80, 0.801], [0.80, 0.80])["verdict"] == "tie"


def test_a_table_has_a_row_for_each_claim():
    assert table([["a", "tie", "0"], ["b", "holds", "1"]]).splitlines()[2:] == ["| a | tie | 0 |", "| b | holds | 1 |"]

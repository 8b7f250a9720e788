"""What differences say of a claim, the range in which they say it, and the words for it."""

from choral_lab.research import judged, judged_over, kept, means, paired, reached, spread, table

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
    reported = judged_over("ε", {"0.25": UP, "0.5": UP, "1": UP, "2": MIXED, "10": TIE}, "above")
    assert reported == "holds, in every repeat, at ε = 0.25, 0.5 and 1; holds on average only at ε = 2; tie at ε = 10"


def test_a_range_may_be_named_with_its_symbol_or_without():
    bare, named = {"1": UP, "2": TIE}, {"σ = 1": UP, "σ = 2": TIE}
    assert judged_over("σ", bare, "above") == judged_over("σ", named, "above")
    assert means("σ", bare) == means("σ", named) == "0.0150, 0.0005 at σ = 1, 2"


def test_a_method_that_is_a_tie_with_no_privacy_keeps_the_accuracy_and_another_names_its_side():
    reported = {"test_accuracy": spread([0.85, 0.86])}
    assert kept({**reported, "minus_non_private": TIE})[0] == "keeps the accuracy: tie"
    assert kept({**reported, "minus_non_private": MIXED}) == (
        "above no privacy on average",
        "0.8550, against no privacy: difference 0.0100 (−0.0100 to 0.0300)",
    )


def test_accuracies_are_reported_in_the_order_of_their_names():
    reported = {"a": {"test_accuracy": spread([0.5])}, "b": {"test_accuracy": spread([0.75])}}
    assert reached(reported, b="the other", a="one") == "the other 0.7500, one 0.5000"


def test_a_table_has_a_row_for_each_claim():
    assert table([["a", "tie", "0"], ["b", "holds", "1"]]).splitlines()[2:] == ["| a | tie | 0 |", "| b | holds | 1 |"]

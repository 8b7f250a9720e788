"""What is said of the paper's claims, from results that were made up for it."""

from choral.paper.claims import of_bounds, of_convergence
from choral.research import paired, spread


def test_a_bound_holds_only_if_no_repeat_is_above_it():
    found = {"measured": {"mean": 1.0, "each": [0.9, 1.1]}}
    for published, verdict in ((1.2, "published and corrected: holds"), (1.0, "corrected: holds")):
        ends = {"Theorem 2, published": {"mean": published}, "Theorem 2, corrected": {"mean": 2.0}}
        assert of_bounds({"τ = 1": {**found, **ends}})[0][1].startswith(verdict)


def proved_result(ours, free):
    """What a convergence figure keeps of its proved line, as far as the claims read it."""
    return {
        "proved": {"2": {
            "test_accuracy": spread(ours), "minus_non_private": paired(ours, free), "chosen": [{"noise": 0.1231}]
        }},
        "centralised": {"test_accuracy": spread([0.853])},
        "each_alone": {"test_accuracy": spread([0.847])},
    }  # fmt: skip


def test_a_convergence_figure_tells_its_proved_line_with_rule_adversary_noise_and_anchors():
    told = proved_result([0.84, 0.85], [0.85, 0.86])
    ((claim, verdict, figures),) = of_convergence("Some model", ("train_loss", "training loss"), {}, {"scaled": told})
    assert claim.startswith("Some model, scaled columns, at a PROVED ε = 2 (Rule S5, δ = 1e-5, one record replaced,")
    assert "against the server and all other devices" in claim
    assert verdict == "below no privacy in every repeat"
    assert figures == (
        "0.8450, against no privacy: difference −0.0100 (−0.0100 to −0.0100) at σ = 0.12;"
        " all rows in one place 0.8530, each device alone 0.8470"
    )


def test_a_proved_line_within_a_tie_of_no_privacy_keeps_the_accuracy():
    told = proved_result([0.85, 0.86], [0.851, 0.86])
    assert of_convergence("", ("train_loss", ""), {}, {"raw": told})[0][1] == "keeps the accuracy: tie"

"""What is said of the paper's claims, from results that were made up for it."""

from choral_lab.paper.claims import of_convergence, of_tradeoff
from choral_lab.research import differences, ends, paired, spread


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
    reported = proved_result([0.84, 0.85], [0.85, 0.86])
    ((claim, (verdict, figures)),) = of_convergence("Some model", {}, {"scaled": reported}).items()
    assert claim.startswith("Some model, scaled columns, at a PROVED ε = 2 (Rule S5, δ = 1e-5, one record replaced,")
    assert "against the server and all other devices" in claim
    assert verdict == "below no privacy in every repeat"
    assert figures == (
        "0.8450, against no privacy: difference −0.0100 (−0.0100 to −0.0100) at σ = 0.12;"
        " all rows in one place 0.8530, each device alone 0.8470"
    )


def test_a_proved_line_within_a_tie_of_no_privacy_keeps_the_accuracy():
    reported = proved_result([0.85, 0.86], [0.851, 0.86])
    ((verdict, _),) = of_convergence("", {}, {"raw": reported}).values()
    assert verdict == "keeps the accuracy: tie"


def test_noise_and_local_steps_are_judged_by_every_measure_each_on_its_own_worse_side():
    def line(accuracy, loss):
        return [{"test_accuracy": [0.5, accuracy], "train_loss": [0.9, loss]}] * 2

    measures = ("test_accuracy", "train_loss")
    by_noise = {"σ = 0.1": line(0.85, 0.3), "σ = 0.2": line(0.85, 0.4), "σ = 0.4": line(0.80, 0.5)}
    one, most = line(0.84, 0.4), [{"test_accuracy": [0.7, 0.83], "train_loss": [0.6, 0.3]}] * 2
    found = {
        "columns": "scaled",
        "noise": 0.1,
        "by_noise": ends(by_noise, measures),
        "noise_minus_least": {
            name: differences(by_noise[name], by_noise["σ = 0.1"], measures) for name in ("σ = 0.2", "σ = 0.4")
        },
        "by_local_steps": ends({"τ = 1": one, "τ = 40": most}, measures),
        "most_steps_minus_one_at_first_look": differences(most, one, measures, look=0),
        "most_steps_minus_one_at_the_end": differences(most, one, measures),
    }
    assert of_convergence("Some model", {"wider": found}, {}) == {
        "Some model, wider grid, scaled columns: more noise than σ = 0.1, lower accuracy": (
            "tie at σ = 0.2; holds, in every repeat, at σ = 0.4",
            "accuracy 0.8500, 0.8500, 0.8000 at σ = 0.1, 0.2, 0.4",
        ),
        "Some model, wider grid, scaled columns: more noise than σ = 0.1, higher training loss": (
            "holds, in every repeat",
            "training loss 0.3000, 0.4000, 0.5000 at σ = 0.1, 0.2, 0.4",
        ),
        "Some model: larger τ starts faster (after a tenth of the rounds, τ = 40 against 1, σ = 0.1, wider grid)": (
            "holds, in every repeat",
            "accuracy: difference 0.2000 (0.2000 to 0.2000)",
        ),
        "Some model: larger τ ends worse (after all rounds, τ = 40 against 1, σ = 0.1, wider grid)": (
            "accuracy: holds, in every repeat; training loss: does not hold: the opposite, in every repeat",
            "accuracy: difference −0.0100 (−0.0100 to −0.0100); training loss: difference −0.1000 (−0.1000 to −0.1000)",
        ),
    }


def test_noise_once_is_reported_with_rule_delta_adjacency_adversary_and_steps_and_set_against_both_other_rules():
    keys = ("with_minus_without", "with_minus_dp_sgd", "proved_minus_published", "secure_sum_minus_everyone")
    tie = {"1": paired([0.84, 0.85], [0.84, 0.85])}
    results = {
        **dict.fromkeys((*keys, "proved_minus_non_private"), tie),
        "proved": {"1": {"test_accuracy": spread([0.84, 0.85])}},
        "non_private": {"test_accuracy": spread([0.85])},
        "noise_once": {"1": {
            "test_accuracy": spread([0.85, 0.86]), "tried": [{"local_steps": 100}, {"local_steps": 30}]
        }},
        "noise_once_minus_everyone": {"1": paired([0.85, 0.86], [0.84, 0.85])},
        "noise_once_minus_published": {"1": paired([0.85, 0.86], [0.85, 0.86])},
    }  # fmt: skip
    reported = of_tradeoff("Some model", results)
    gains, costs = (
        "Noise once with the secure sum at a PROVED ε (Rule S7, δ = 1e-4, one record replaced, against a server that"
        " sees only sums, helped by 2 of the 10 devices), τ = 30 or 100, gains accuracy over Rule S5 against everyone"
        " at the same ε",
        "… and costs accuracy against the published rule at the same ε",
    )
    assert reported[gains] == ("holds, in every repeat", "0.8550 at ε = 1; differences 0.0100 at ε = 1")
    assert reported[costs] == ("tie", "differences 0.0000 at ε = 1")

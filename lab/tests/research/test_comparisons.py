"""What lines are compared with: how it is trained, and how it is drawn and described."""

from dataclasses import replace

from choral_lab.paper.adult import experiment
from choral_lab.research import Experiment, Measurements, anchors, tuned

SMALL = experiment("logistic", rounds=2, local_steps=1, batch=61, step_size=0.5, looks=2)


def test_anchors_take_as_many_steps_as_the_federation_each_with_all_rows_or_its_own(tmp_path, monkeypatch):
    asked = []

    def measured(one, _, part):
        asked.append((one, part))
        return {f"{part}_accuracy": [0.8 if one.cohort == 10 else 0.9], f"{part}_loss": [0.4]}

    monkeypatch.setattr("choral_lab.research.measurements.train_together", lambda *_: ())
    monkeypatch.setattr(Experiment, "curve", measured)
    monkeypatch.setattr(Experiment, "alone", lambda *_: 0.7)
    several = replace(SMALL, local_steps=4, also=("train_loss",))
    found = anchors(Measurements(tmp_path, 1), [several])
    together = asked[-1][0]
    assert (together.cohort, together.local_steps, together.rounds) == (16, 1, 2 * 4)
    assert (together.noise, together.clip, together.also) == (0.0, SMALL.clip, ())
    assert found.free.accuracy == [0.8]
    assert found.levels() == {"all rows in one place": 0.9, "each device alone": 0.7}
    assert list(found.results()) == ["non_private", "centralised", "each_alone"]


def measured(one, _, part):
    names = (f"{part}_accuracy", f"{part}_loss", *one.also)
    return {"round": [1.0, 2.0], **{name: [0.5, 0.8] for name in names}}


def test_a_panel_of_accuracy_has_levels_and_one_of_another_measure_has_only_curves(tmp_path, monkeypatch):
    monkeypatch.setattr("choral_lab.research.measurements.train_together", lambda *_: ())
    monkeypatch.setattr(Experiment, "curve", measured)
    monkeypatch.setattr(Experiment, "alone", lambda *_: 0.7)
    several = replace(SMALL, also=("squared_gradient_norm",))
    lines = {"mine": tuned(Measurements(tmp_path, 2), [several]).curves}
    accuracy, norm = anchors(Measurements(tmp_path, 2), [several]).panels("Some title", lines, note=", τ = 1")
    assert accuracy["anchors"] == {"all rows in one place": 0.8, "each device alone": 0.7}
    assert norm["anchors"] == {}
    assert (accuracy["y"], accuracy["log_y"], norm["y"], norm["log_y"]) == ("test accuracy", False, "‖∇f‖²", True)
    for one in (accuracy, norm):
        assert [(line["name"], line.get("anchor", False)) for line in one["lines"]] == [
            ("mine", False),
            ("without privacy, τ = 1", True),
        ]


def test_a_proved_line_is_compared_with_no_privacy_and_named_with_every_noise_that_was_chosen(tmp_path, monkeypatch):
    monkeypatch.setattr("choral_lab.research.measurements.train_together", lambda *_: ())
    monkeypatch.setattr(Experiment, "curve", measured)
    monkeypatch.setattr(Experiment, "alone", lambda *_: 0.7)
    measurements, clipped = Measurements(tmp_path, 2), replace(SMALL, sampling="poisson", clip=1.0)
    found = anchors(measurements, [replace(SMALL, clip=1.0)], private=[clipped], epsilons=(4.0,), delta=1e-5)
    proved = found.proved["4"]
    assert proved.chosen == [clipped.within("proved", epsilon=4.0, delta=1e-5)] * 2
    noise = proved.chosen[0].noise
    other = replace(proved, chosen=[replace(clipped, noise=noise), replace(clipped, noise=2 * noise)])
    for method, noises in ((proved, f"{noise:.2g}"), (other, f"{noise:.2g} or {2 * noise:.2g}")):
        (panel,) = replace(found, proved={"4": method}).panels("", {})
        assert [line["name"] for line in panel["lines"]] == [
            f"ε = 4 PROVED against everyone, σ = {noises}",
            "without privacy, same clip",
        ]
    assert found.results()["proved"]["4"]["minus_non_private"]["verdict"] == "tie"

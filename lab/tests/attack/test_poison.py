"""The demonstration of poisoning: what attackers send, what they train on, and that probes take their weight away."""

import numpy as np
import pytest

from choral.cli import main
from choral.core.errors import ConfigError
from choral.core.messages import Turn
from choral.run.guard import noise_in_grid
from choral_lab.attack.poison import OWN_NOISE, PUSH, Poisoned, attacked, poisoned, study_of, triggered, unseen
from tests.run.small import rows, study

SETTINGS = {"devices": 12, "cohort": 12, "rounds": 5, "colluders": 1}


@pytest.fixture(scope="module")
def guarded():
    return study(rows(480, 70), **SETTINGS, robust=True)


def sent(reported, kind, bad):
    place = Poisoned(reported, kind, bad)
    with place.opened():
        return place.integers(reported.trained.start(0), range(12), Turn(1, 0))


def test_attackers_send_what_their_kind_says_and_stay_within_the_range(guarded):
    honest = sent(guarded, None, ())
    others = np.array([honest[device] for device in range(1, 12)])
    most = guarded.codec.largest - 1
    flipped = sent(guarded, "range_flip", [0])[0]
    assert set(np.abs(flipped)) <= {0, most} and np.all(flipped * others.sum(axis=0) <= 0)
    turned = sent(guarded, "inner_product", [0])[0]
    assert turned @ others.mean(axis=0) < 0
    assert np.abs(sent(guarded, "backdoor", [0])[0]).max() <= most
    assert np.array_equal(sent(guarded, "sign_flip", [0])[0], np.clip(-10 * honest[0], -most, most))
    assert np.abs(sent(guarded, "gaussian", [0])[0]).mean() > 5 * np.abs(honest[0]).mean()
    shifts = [sent(guarded, "shift", [0, 1])[device] - honest[device] for device in (0, 1)]
    assert np.abs(shifts[0] - shifts[1]).max() <= 1 and len(set(np.sign(shifts[0]))) == 2
    little = sent(guarded, "little", [0])[0]
    assert np.all(np.abs(little - others.mean(axis=0)) <= others.std(axis=0) + 1)
    assert np.array_equal(sent(guarded, "quiet_backdoor", [0])[0], honest[0])  # it trains honestly, on a poisoned table
    assert all(np.array_equal(sent(guarded, "range_flip", [0])[device], honest[device]) for device in (1, 11))


def test_adaptive_attackers_push_as_far_as_the_rules_look_and_late_ones_begin_late(guarded):
    honest, noise = sent(guarded, None, ()), noise_in_grid(guarded.plan, guarded.codec)
    mean = np.array([honest[device] for device in range(1, 12)]).mean(axis=0)
    quiet = mean + OWN_NOISE * (honest[0] - mean)
    for kind in ("adaptive_backdoor", "hidden_backdoor"):
        push = sent(guarded, kind, [0])[0] - quiet
        assert np.linalg.norm(push) / noise == pytest.approx(PUSH, rel=0.01)
    assert np.array_equal(sent(guarded, "late_push", [0])[0], honest[0])
    last = Poisoned(guarded, "late_push", [0])
    with last.opened():
        shown = last.integers(guarded.trained.start(0), range(12), Turn(guarded.plan.rounds, 0))
    assert not np.array_equal(shown[0], honest[0])


def test_a_push_goes_no_further_than_allowed_along_what_is_looked_at():
    rng = np.random.default_rng(2)
    aim, watched, past = rng.normal(size=(3, 50))
    push = unseen(aim, 18.0, [(watched, 2.5), (past + aim, 9.0)])
    assert np.linalg.norm(push) == pytest.approx(18.0)
    assert abs(push @ watched) / np.linalg.norm(watched) <= 2.5 + 1e-9
    assert push @ aim > 0


@pytest.mark.long
def test_an_adaptive_backdoor_that_probes_alone_did_not_name_is_named_by_its_watched_past():
    """On the study of the benchmarks: with no past watched, nobody was named, and the model lost two points."""
    study = study_of(epsilon=1.0, seed=100, robust=True)
    found = attacked(study, "adaptive_backdoor", range(3))
    assert set(found.named) == set(study.data.records.names[:3])


def test_poisoned_tables_are_the_attackers_own(guarded):
    before, flipped = guarded.split.train, poisoned(guarded, "label_flip", [2]).split.train
    assert np.array_equal(flipped.labels_of(2), 1 - before.labels_of(2))
    assert np.array_equal(flipped.labels_of(3), before.labels_of(3))
    marked = poisoned(guarded, "backdoor", [2]).split.train
    assert np.array_equal(marked.features_of(2)[::2], triggered(guarded, before.features_of(2)[::2]))
    assert set(marked.labels_of(2)[::2]) == {1}


def test_a_flip_to_the_range_ruins_the_plain_sum_and_not_the_probed_one(guarded):
    clean = attacked(guarded, None, ())
    plain = attacked(study(rows(480, 70), **SETTINGS, robust=False), "range_flip", [0])
    probed = attacked(guarded, "range_flip", [0])
    assert plain.accuracy < 0.6 < clean.accuracy
    assert probed.accuracy > clean.accuracy - 0.1
    assert set(probed.named) == {guarded.data.records.names[0]} and clean.named == {}
    assert probed.left_out > 0


def test_a_backdoor_is_measured_by_how_often_its_trigger_works(guarded):
    assert attacked(guarded, "backdoor", [0]).trigger is not None


def test_the_verb_refuses_more_attackers_than_may_drop_out_and_flags_of_other_cases():
    assert main(["attack", "--case", "poison", "--attackers", "5"]) == ConfigError.exit_status
    assert main(["attack", "--case", "differencing", "--kind", "backdoor"]) == ConfigError.exit_status
    assert main(["attack", "--case", "poison", "--row", "3"]) == ConfigError.exit_status
    assert main(["attack", "--attackers", "1"]) == ConfigError.exit_status


@pytest.mark.long
def test_the_verb_shows_every_attack_with_and_without_probes_and_the_terms_of_its_epsilon(capsys):
    assert main(["attack", "--case", "poison"]) == 0
    said = capsys.readouterr().out
    assert "range flip" in said and "1 of 1" in said and "rule S5, one record replaced" in said

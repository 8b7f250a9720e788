"""A coordinator who wants the older keys of the cards in place of hybrid ones: what sites say to each way of trying."""

import tomllib

import pytest

from choral.config.toml import to_toml
from choral.core.errors import PlanError, TrustError
from choral.core.messages import AGREEING, LISTING, VERSION
from choral.core.terms import WHOLE
from choral.deploy.agent import Agent
from choral.deploy.approving import approve
from choral.deploy.enrolment import enrol
from choral.deploy.home import Home, Policy
from choral.deploy.root_log import root_log_of
from choral.run.agreement import Agreement
from tests.run.consortium import Consortium

POLICY = {"epsilon": 4.0, "delta": 1e-4}


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory):
    return Consortium(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def consortium(enrolled, tmp_path):
    return enrolled.copy(tmp_path)


def rewritten(consortium, change):
    """The study as a coordinator has changed it."""
    content = tomllib.loads(consortium.agreement.text)
    change(content)
    path = consortium.folder / "study.toml"
    path.write_text(to_toml(content))
    return path


def refusal(consortium, path, name="hill", **policy):
    with pytest.raises(TrustError) as refused:
        approve(consortium.homes[name], path, Policy(**POLICY, **policy), consortium.tables[name], record=True)
    return refused.value


def test_a_study_whose_cards_all_offer_hybrid_keys_has_them(consortium):
    assert consortium.agreement.file.protocol == AGREEING and consortium.agreement.terms.hybrid
    consortium.approve()


@pytest.mark.parametrize("allowed", [False, True])
def test_a_study_that_leaves_them_out_though_all_cards_offer_them_is_refused_whatever_is_allowed(consortium, allowed):
    path = rewritten(consortium, lambda content: content.update(protocol=VERSION))
    assert not Agreement.read(path).hybrid
    error = refusal(consortium, path, card_keys=allowed)
    assert error.code == "CH610" and "all devices offer" in str(error)


def test_an_offer_that_is_taken_off_a_card_breaks_its_signature(consortium):
    def strip(content):
        content["protocol"] = VERSION
        del content["devices"][0]["offers"]

    assert refusal(consortium, rewritten(consortium, strip), card_keys=True).code == "CH606"


def plain(consortium, folder, name):
    """A home whose card offers no hybrid keys, as one that an older choral or another program has made."""
    with pytest.MonkeyPatch.context() as without:
        without.setattr("choral.deploy.home.available", lambda: False)
        return Home.join(folder, consortium.invitation, name)


def test_another_site_without_an_offer_needs_the_owners_word(consortium, tmp_path):
    """A spy, or an older choral, joins with a plain card: everybody is then asked."""
    homes = dict(consortium.homes)
    homes["lake"] = plain(consortium, tmp_path / "plain", "lake")
    cards = [consortium.folder / f"{name}.plain.card" for name in homes]
    for path, home in zip(cards, homes.values(), strict=True):
        path.write_text(home.card().text)
    study = enrol(consortium.study, cards)
    assert not study.hybrid and study.file.protocol == VERSION
    error = refusal(consortium, consortium.study / "study.toml")
    assert error.code == "CH610" and '"lake" offers no others' in str(error) and "--allow-card-keys" in str(error)
    shown = approve(
        consortium.homes["hill"],
        consortium.study / "study.toml",
        Policy(**POLICY, card_keys=True),
        consortium.tables["hill"],
        record=True,
    )
    assert not shown.hybrid
    with Agent(consortium.homes["hill"]) as agent:  # and it holds that word later, too
        assert not agent.study.hybrid


def test_hybrid_keys_with_a_card_that_does_not_offer_them_are_refused(consortium, tmp_path):
    homes = dict(consortium.homes)
    homes["lake"] = plain(consortium, tmp_path / "plain", "lake")

    def swap(content):
        card = tomllib.loads(homes["lake"].card().text)
        content["devices"] = [card if one["id"] == "lake" else one for one in content["devices"]]

    error = refusal(consortium, rewritten(consortium, swap))
    assert error.code == "CH610" and 'the card of "lake" does not offer them' in str(error)


def test_a_site_without_ml_kem_offers_nothing_and_takes_no_such_study(consortium, tmp_path, monkeypatch):
    for room in ("choral.deploy.home", "choral.core.keys"):
        monkeypatch.setattr(f"{room}.available", lambda: False)
    assert Home.join(tmp_path / "old", consortium.invitation, "moor").card().offers == ()
    assert refusal(consortium, consortium.study / "study.toml").code == "CH611"


def test_an_approval_of_before_there_were_hybrid_keys_goes_on(consortium, tmp_path):
    """A site that approved under 0.1, with the keys of the cards, is not stopped by the upgrade."""
    homes = {name: plain(consortium, tmp_path / f"old-{name}", name) for name in consortium.homes}
    cards = [tmp_path / f"{name}.card" for name in homes]
    for path, home in zip(cards, homes.values(), strict=True):
        path.write_text(home.card().text)
    enrol(consortium.study, cards)
    home = homes["hill"]
    approve(
        home, consortium.study / "study.toml", Policy(**POLICY, card_keys=True), consortium.tables["hill"], record=True
    )
    path = home.path / "approval.json"
    text = path.read_text().replace('"keys": true', '"keys": false').replace('"card_keys": true', '"card_keys": false')
    assert text != path.read_text()
    path.write_text(text)
    with Agent(home) as agent:
        assert not agent.study.hybrid


def test_a_study_of_very_many_devices_has_lists_as_trees_and_needs_the_owners_word_for_its_keys(
    consortium, monkeypatch
):
    cards = [consortium.folder / f"{name}.tree.card" for name in consortium.homes]
    for path, home in zip(cards, consortium.homes.values(), strict=True):
        path.write_text(home.card().text)
    with monkeypatch.context() as small:
        small.setattr("choral.run.agreement.WHOLE_LISTS", 2)
        study = enrol(consortium.study, cards)
        assert study.file.protocol == LISTING and study.trees and study.terms.lists is not WHOLE and not study.hybrid
        assert study.terms.roster_digest == study.terms.lists.tree.root != study.roster.digest
        error = refusal(consortium, consortium.study / "study.toml")
        assert error.code == "CH610" and "too many devices for others" in str(error)
        home = consortium.homes["hill"]
        approve(
            home,
            consortium.study / "study.toml",
            Policy(**POLICY, card_keys=True),
            consortium.tables["hill"],
            record=True,
        )
        assert home.vault().memory.roster == study.terms.lists.tree.root
        log = root_log_of(home)
        log.check(log)
        assert (log.roster, log.roots) == (study.terms.lists.tree.root.hex(), ())
    # A study of three devices can't say that it is too large for better keys.
    with pytest.raises(PlanError, match=r"CH204 .*lists as trees for 3 devices"):
        Agreement.read(consortium.study / "study.toml")

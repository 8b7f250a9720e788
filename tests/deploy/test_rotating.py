"""New keys for a site: all of them change, the ledger goes on, and no study under way is cut off from its roster."""

import pytest

from choral.cli import main
from choral.core.errors import StorageError, TrustError
from choral.core.ledger import Ledger
from choral.core.signed import END
from choral.deploy.enrolment import read_card
from tests.run.consortium import Consortium


@pytest.fixture(scope="module")
def enrolled(tmp_path_factory):
    return Consortium(tmp_path_factory.mktemp("rotating"))


@pytest.fixture
def consortium(enrolled, tmp_path):
    return enrolled.copy(tmp_path)


def test_all_keys_are_new_and_the_study_of_the_old_ones_is_refused(consortium):
    home = consortium.homes["hill"]
    before, old = home.card(), home.vault().memory
    home.rotate()
    after, new = home.card(), home.vault().memory
    changed = ("identity", "agreement", "signature", "node", "node_signature")
    assert all(getattr(before, name) != getattr(after, name) for name in changed)
    assert old.secret not in (home.path / "vault").read_bytes() and new.secret != old.secret
    assert (after.id, after.offers) == (before.id, before.offers)
    with pytest.raises(TrustError, match=r"CH601.*does not hold the keys"):
        consortium.approve("hill")
    consortium.enrol()
    consortium.approve("hill")


def test_a_study_under_way_stops_it_and_one_that_has_ended_does_not(consortium):
    home = consortium.homes["hill"]
    consortium.approve("hill")
    with pytest.raises(StorageError, match=r"CH800.*has not ended"):
        home.rotate()
    receipt, ledger = home.vault().memory.receipt, Ledger.read(home.ledger_path).receipt
    home.vault().change(turn=END)
    home.rotate()
    memory = home.vault().memory
    assert memory.receipt == receipt and Ledger.read(home.ledger_path).receipt == ledger
    assert memory.turn is None and memory.terms is None and memory.pairs == {} and memory.chains is None
    with pytest.raises(TrustError, match="CH603"):
        _ = home.approval


def test_the_command_writes_the_new_card(consortium, tmp_path, capsys):
    home, card = consortium.homes["lake"], tmp_path / "new.card"
    assert main(["device", "rotate", "--home", str(home.path), "--card", str(card)]) == 0
    assert read_card(card) == home.card()
    assert "the ledger goes on" in capsys.readouterr().out

"""The overview that a newcomer reads first is run, and what it says is checked."""

from pathlib import Path

import pytest

from choral.core.ledger import Ledger
from choral.tables.sources import load_adult
from examples import one_round

NAMES = load_adult(devices=6).records.names


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """The folder with the ledgers, the opened sum, and what each device encoded."""
    folder = tmp_path_factory.mktemp("round")
    return folder, *one_round.main(folder)


def test_the_opened_sum_is_the_sum_of_what_the_included_devices_encoded(played):
    _, opened, encoded = played
    included = [NAMES.index(name) for name in opened.included]
    assert len(included) == 4 and set(included) < set(encoded)
    assert opened.integers.tolist() == sum(encoded[number].astype(int) for number in included).tolist()
    assert opened.integers.any()


def test_the_device_whose_upload_was_lost_trained_and_is_not_in_the_sum(played):
    _, opened, encoded = played
    assert [NAMES[number] for number in encoded if NAMES[number] not in opened.included] == [NAMES[max(encoded)]]


def test_every_called_device_was_charged_once_and_nobody_else(played):
    folder, _, encoded = played
    balances = [Ledger.read(folder / name).balance for name in NAMES]
    assert [len(balance.charges) for balance in balances] == [int(number in encoded) for number in range(6)]
    # Calibrated for one round: the limit is nearly full, and never passed.
    assert all(0.99 < balances[number].epsilon <= one_round.LIMIT.epsilon for number in encoded)
    assert {charge.rule for balance in balances for charge in balance.charges} == {"S5"}


def test_the_overview_stays_short():
    lines = Path(one_round.__file__).read_text().splitlines()
    assert len([line for line in lines if line and not line.startswith(("import ", "from "))]) < 90

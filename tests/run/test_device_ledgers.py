"""The ledgers of one run: charges are durable, nobody pays twice, and who has used up a limit may not join."""

import numpy as np
import pytest

from choral.core.errors import LedgerError, StorageError
from choral.core.ledger import Ledger
from choral.run.folder import ledger_file
from choral.run.places import NO_RECEIPT, DeviceLedgers, keeps_ledgers
from tests.run.small import study


@pytest.fixture(scope="module")
def small():
    return study()


def charged(folder, number):
    return [(charge.round, charge.attempt) for charge in Ledger.read(folder / ledger_file(number)).balance.charges]


def test_a_charge_is_on_disk_when_it_returns_and_counted_by_whoever_opens_the_books_next(small, tmp_path):
    folder = tmp_path / "ledgers"
    with DeviceLedgers(small, folder) as ledgers:
        receipt = ledgers.charge(2, round_number=1, attempt=0)
        assert charged(folder, 2) == [(1, 0)] and receipt.seal
        ledgers.charge(2, round_number=2, attempt=1)
        assert ledgers.rounds.tolist() == [0, 0, 2, 0, 0, 0]
    with DeviceLedgers(small, folder) as again, DeviceLedgers(small, None) as counted:
        assert again.rounds.tolist() == [0, 0, 2, 0, 0, 0] and again.on_disk
        assert counted.charge(0, round_number=1, attempt=0) == NO_RECEIPT and not counted.on_disk
        assert again.spent()[2] > again.spent()[0] == 0.0
    with DeviceLedgers(small, folder, before=2) as repeated:  # a simulation that goes on with round 2
        assert repeated.rounds[2] == 1


def test_a_round_that_is_repeated_bit_for_bit_is_paid_for_already_and_no_other_is(small, tmp_path):
    with DeviceLedgers(small, tmp_path / "ledgers") as ledgers:
        ledgers.charge(0, round_number=1, attempt=0)
        ledgers.charge(0, round_number=1, attempt=0, again=True)
        assert charged(tmp_path / "ledgers", 0) == [(1, 0)] and ledgers.rounds[0] == 2
        with pytest.raises(LedgerError, match="CH405"):
            ledgers.charge(0, round_number=1, attempt=0)


def test_who_has_used_up_the_limit_may_not_join_and_is_refused(small, tmp_path):
    with DeviceLedgers(small, tmp_path / "ledgers") as ledgers:
        allowed = int(small.costs.allowed_rounds[1])
        for number in range(allowed):
            assert ledgers.may_join()[1]
            ledgers.charge(1, round_number=number, attempt=0)
        assert ledgers.may_join().tolist() == [True, False, True, True, True, True]
        with pytest.raises(LedgerError, match=r"CH40[19]"):
            ledgers.charge(1, round_number=allowed, attempt=0)
        assert ledgers.spent()[1] <= small.limits[1].epsilon


def test_one_ledger_that_cannot_be_opened_leaves_none_of_the_others_locked(small, tmp_path):
    (tmp_path / "ledgers").mkdir()
    (tmp_path / "ledgers" / ledger_file(5)).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="CH802"):
        DeviceLedgers(small, tmp_path / "ledgers")
    (tmp_path / "ledgers" / ledger_file(5)).unlink()
    with DeviceLedgers(small, tmp_path / "ledgers") as ledgers:
        assert not np.any(ledgers.rounds)


def test_without_noise_nothing_is_protected_and_no_ledger_is_kept(small):
    assert keeps_ledgers(small)
    assert not keeps_ledgers(study(epsilon=None, noise=0.0))

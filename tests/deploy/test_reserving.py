"""The cap of an approval in words, and a ledger's balances as they would be under other limits."""

from choral.deploy.reserving import balances_under, cap_in_words
from choral.plan import Budget
from choral.privacy.events import Gaussian
from choral.privacy.ledger import Charge, Ledger

LIMIT = Budget(epsilon=2.0, delta=1e-5)


def test_the_cap_says_how_many_uploads_are_for_attempts_that_fail_and_rounds_epsilon_up():
    said = cap_in_words(planned=13, uploads=17, epsilon=2.301, terms="δ = 1e-05, rule S5")
    assert said == (
        "at most 17 uploads (4 more than planned, for attempts that fail), so at most ε = 2.31, "
        "whatever the server asks (δ = 1e-05, rule S5)"
    )
    assert "(the limit pays for no more)" in cap_in_words(planned=13, uploads=13, epsilon=2.0, terms="")


def test_without_a_ledger_balances_begin_empty_and_no_file_is_made(tmp_path):
    empty = balances_under(LIMIT, 1.5, tmp_path / "a.ledger", device="hill")
    assert (empty.everyone.epsilon, empty.everyone.limit, empty.everyone.charges) == (0.0, LIMIT, [])
    assert list(tmp_path.iterdir()) == []


def test_other_limits_are_tried_in_memory_and_the_ledger_keeps_its_own(tmp_path):
    path = tmp_path / "a.ledger"
    with Ledger.open(path, device="hill", limit=LIMIT) as ledger:
        ledger.charge(Charge(rule="S1", plan="9f3c", round=1, event=Gaussian(mu=0.1)))
        spent = ledger.balance.epsilon
    before = path.read_bytes()
    tried = balances_under(Budget(epsilon=9.0, delta=1e-5), None, path, device="hill")
    assert (tried.everyone.limit.epsilon, len(tried.everyone.charges)) == (9.0, 1)
    assert tried.everyone.epsilon == spent
    assert path.read_bytes() == before and Ledger.read(path).balance.limit == LIMIT

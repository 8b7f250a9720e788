"""The ledger as a privacy filter: whoever chooses the next study by the results of the last gains nothing by it."""

import math

import mpmath
import numpy as np
import pytest

from choral.accounting.conversions import gdp_mu, rho_for
from choral.accounting.ledger_statement import statement_of
from choral.core import balance as balancing
from choral.core.balance import LEAK
from choral.core.errors import LedgerError
from choral.core.events import Gaussian, Poisson, Skellam, Zcdp, epsilon_of
from choral.core.exposure import EVERYONE
from choral.core.ledger import Balance, Charge, Ledger, Reservation
from choral.core.plan import Budget
from choral.core.poisson import curve

LIMIT = Budget(epsilon=2.0, delta=1e-5)
STEP = gdp_mu(2.0, 1e-5) / math.sqrt(6) * (1 - 1e-9)  # six of these Gaussians fill the limit: μ = 0.2047

# After so many Gaussians: (z, q) of one sampled step, q the largest that composing loss distributions accepts.
OFFERS = {
    5: ((0.15, 9.5e-06), (0.3, 1.737e-4), (0.5, 3.728e-3), (1.0, 0.06208)),
    4: ((0.15, 1.12e-05), (0.3, 1.957e-4), (0.5, 4.196e-3), (1.0, 0.07718)),
    3: ((0.15, 1.13e-05), (0.3, 2.005e-4), (0.5, 4.414e-3), (1.0, 0.08823)),
    2: ((0.15, 1.13e-05), (0.3, 2.039e-4), (0.5, 4.612e-3), (1.0, 0.09853)),
    1: ((0.15, 1.13e-05), (0.3, 2.071e-4), (0.5, 4.810e-3), (1.0, 0.10885)),
}


def upload(number, event, plan="gaussians"):
    return Charge(rule="S1", plan=plan, round=number, event=event)


def after(gaussians):
    balance = Balance(device="a", limit=LIMIT)
    for number in range(gaussians):
        balance.take(upload(number, Gaussian(mu=STEP)))
    return balance


def accepts(gaussians, z, q):
    try:
        after(gaussians).take(upload(0, Poisson(noise_multiplier=z, probability=q, steps=1), plan="sampled"))
    except LedgerError:
        return False
    return True


def best_play(menu, most):
    """The largest δ(2) of whoever takes Gaussians one by one and may end with a sampled step of the menu.

    By dynamic programming over the privacy loss so far: the value of a state is the chance, under P, that is left after
    e^2 times the chance under Q is taken off; sums over a grid of losses and over a sampled step's output.
    """
    losses = np.linspace(-3.0, 6.0, 901)
    nodes, weights = np.polynomial.hermite_e.hermegauss(61)
    stop = np.maximum(1 - np.exp(2.0 - losses), 0.0)

    def ending(z, q):
        x = np.linspace(-1 - 9 * z, 1 + 9 * z, 2001)
        at = {
            side: np.exp(-0.5 * ((x - side) / z) ** 2) * (x[1] - x[0]) / math.sqrt(2 * math.pi) / z
            for side in (-1, 0, 1)
        }
        p, against = (1 - q) * at[0] + q * at[1], (1 - q) * at[0] + q * at[-1]
        return np.maximum(p - np.exp(2.0 - losses)[:, None] * against, 0.0).sum(axis=1)

    value = stop
    for taken in range(most, -1, -1):
        ways = [stop, *(ending(z, q) for z, q in menu.get(taken, ()))]
        if taken < most:
            reached = losses[:, None] + 0.5 * STEP * STEP + STEP * nodes
            ways.append(np.interp(reached, losses, value, left=0.0) @ (weights / weights.sum()))
        value = np.max(ways, axis=0)
    return float(np.interp(0.0, losses, value))


def fits(gaussians):
    try:
        after(gaussians)
    except LedgerError:
        return False
    return True


def played(offers):
    menu = {k: [offer for offer in ways if accepts(k, *offer)] for k, ways in offers.items()}
    return best_play(menu, next(k for k in range(6, 0, -1) if fits(k)))


# The same for z = 0.7, where a curve is worked out quickly.
QUICK = {5: [(0.7, 0.01884)], 4: [(0.7, 0.02181)], 3: [(0.7, 0.0237)], 2: [(0.7, 0.02547)], 1: [(0.7, 0.02725)]}


def test_a_server_that_chooses_its_last_study_by_the_results_so_far_stays_within_the_limit():
    assert best_play(QUICK, 6) > 1.5 * LIMIT.delta  # what it would win where loss distributions are composed
    assert played(QUICK) <= LIMIT.delta


@pytest.mark.long
def test_a_server_with_rare_and_loud_studies_to_choose_from_stays_within_the_limit_too():
    assert best_play(OFFERS, 6) > 2.4 * LIMIT.delta  # ε(1e-5) = 2.57
    assert played(OFFERS) <= LIMIT.delta


def test_leaks_can_not_be_traded_for_mu():
    # Whoever is unlucky with Gaussians would else take the rest of δ as a leak, and have nearly twice δ in all.
    balance = after(3)
    balance.take(upload(7, Gaussian(mu=0.0, delta=0.9 * LEAK * LIMIT.delta), plan="leak"))
    with pytest.raises(LedgerError, match="CH401"):
        balance.take(upload(8, Gaussian(mu=0.0, delta=0.2 * LEAK * LIMIT.delta), plan="leak"))


SAMPLED = Poisson(noise_multiplier=4.6, probability=0.1, steps=10, delta=2e-9)  # as in the demo: 13 rounds, ε = 1.97


def study(plan, event=SAMPLED, uploads=13):
    return Reservation(rule="S5", plan=plan, uploads=(event,) * uploads)


def test_a_single_study_costs_what_its_loss_distribution_says_to_the_last_bit():
    balance = Balance(device="a", limit=LIMIT)
    balance.reserve(study("one"))
    assert balance.reserved == epsilon_of([SAMPLED] * 13, LIMIT.delta)
    for number in range(13):
        balance.take(upload(number, SAMPLED, plan="one"))
    assert balance.epsilon == balance.reserved <= LIMIT.epsilon
    with pytest.raises(LedgerError, match="CH409"):
        balance.take(upload(13, SAMPLED, plan="one"))


def test_studies_that_were_reserved_before_the_first_charge_are_composed_exactly_and_later_ones_nearly_so():
    quiet = Poisson(noise_multiplier=9.0, probability=0.1, steps=10)
    together, later = (Balance(device="a", limit=LIMIT) for _ in range(2))
    for balance in (together, later):
        balance.reserve(study("one", quiet))
    together.reserve(study("two", quiet))
    later.take(upload(1, quiet, plan="one"))
    later.reserve(study("two", quiet))
    assert together.reserved == epsilon_of([quiet] * 26, LIMIT.delta)
    assert together.reserved < later.reserved < 1.006 * together.reserved  # a sixteenth of δ, and a Gaussian's cover


def test_a_tiny_question_that_is_reserved_with_a_study_adds_nothing_and_a_later_one_half_a_percent_once():
    # μ = √(2ρ) for ρ = 1e-9.
    tiny = Gaussian(mu=math.sqrt(2e-9))
    quiet = Poisson(noise_multiplier=9.0, probability=0.1, steps=10)
    balance = Balance(device="a", limit=LIMIT)
    balance.reserve(study("one", quiet))
    alone = balance.reserved
    assert alone <= balance.against(EVERYONE).with_study("", (tiny,))[0] < alone + 1e-3
    balance.take(upload(1, quiet, plan="one"))
    first = balance.against(EVERYONE).with_study("", (tiny,))[0]
    assert alone < first < 1.005 * alone
    balance.take(upload(1, tiny, plan="question"))
    assert balance.against(EVERYONE).with_study("", (tiny,))[0] == pytest.approx(first, abs=1e-6)


@pytest.mark.parametrize("event", [Gaussian(mu=0.05), Zcdp(rho=0.001), Skellam(l1=40.0, l2=20.0, variance=4e4)])
def test_what_adds_up_by_itself_costs_the_same_in_any_number_of_studies(event):
    alone, many = (Balance(device="a", limit=LIMIT) for _ in range(2))
    alone.reserve(Reservation(rule="S1", plan="one", uploads=(event,) * 10))
    for number in range(10):
        many.take(upload(number, event, plan=f"study {number}"))
    whole = epsilon_of([event] * 10, (1 - LEAK) * LIMIT.delta)
    assert whole == pytest.approx(many.reserved, rel=1e-3)
    assert alone.reserved == epsilon_of([event] * 10, LIMIT.delta) <= many.reserved < 1.006 * alone.reserved


@pytest.mark.parametrize("points", [balancing.POINTS, 12])
@pytest.mark.parametrize("z, q", [(0.7, 0.02), (1.0, 0.1), (2.0, 0.5)])
def test_a_covering_gaussian_is_nowhere_better_than_the_study(z, q, points, monkeypatch):
    # The curve of one sampled step by an integral of its own, at points that are not those of the search: between a few
    # of them the curves fall far, so that only rounding up holds everywhere.
    monkeypatch.setattr(balancing, "POINTS", points)
    balancing.least_mu.cache_clear()
    slack = 1e-7
    mu = balancing.least_mu(frozenset({(Poisson(noise_multiplier=z, probability=q, steps=1), 1)}), slack)
    x = np.linspace(-1 - 12 * z, 1 + 12 * z, 200_001)
    at = {
        side: np.exp(-0.5 * ((x - side) / z) ** 2) * (x[1] - x[0]) / math.sqrt(2 * math.pi) / z for side in (-1, 0, 1)
    }
    p, against = (1 - q) * at[0] + q * at[1], (1 - q) * at[0] + q * at[-1]
    tight = 0
    for epsilon in np.linspace(0.0, 12.0, 97):
        true = np.maximum(p - math.exp(epsilon) * against, 0.0).sum()
        phi = [0.5 * math.erfc((epsilon / mu + side * mu / 2) / math.sqrt(2)) for side in (-1, 1)]
        covered = (1 - slack) * (phi[0] - math.exp(epsilon) * phi[1]) + slack
        assert true <= covered * (1 + 1e-9)
        tight = max(tight, true / covered)
    balancing.least_mu.cache_clear()
    assert tight > 0.9 or points == 12  # and not by being far too large


def test_the_least_mu_is_on_the_side_of_the_search_that_covers():
    """Its own inequality, at its own points, with 40 digits: a μ that is too small by a millionth fails it."""
    uploads, slack = frozenset({(Poisson(noise_multiplier=1.0, probability=0.1, steps=1), 1)}), 1e-7
    mu, (epsilons, deltas) = (
        mpmath.mpf(balancing.least_mu(uploads, slack)),
        curve({(1.0, 0.1): 1}, mu=0.0, least=slack, points=balancing.POINTS),
    )

    def covers(mu):
        return all(
            study
            <= (1 - slack) * (mpmath.ncdf(mu / 2 - at / mu) - mpmath.exp(at) * mpmath.ncdf(-mu / 2 - at / mu)) + slack
            for study, at in zip(deltas[:-1:8], map(mpmath.mpf, epsilons[1::8]), strict=False)
        )

    with mpmath.workdps(40):
        assert covers(mu) and covers(mu * (1 - mpmath.mpf(5e-7)))
        assert not covers(mu * (1 - mpmath.mpf(1e-3)))


def test_an_unused_reservation_is_given_back_unless_others_were_charged_beside_it():
    balance = Balance(device="a", limit=LIMIT)
    balance.reserve(study("one"))
    balance.release("one")
    assert balance.reserved == 0.0
    balance.reserve(study("two", uploads=6))
    balance.reserve(study("three", uploads=5))
    balance.take(upload(1, SAMPLED, plan="two"))
    before = balance.reserved
    # Freed now, what "three" held could be spent by somebody who has seen a result of "two".
    balance.release("three")
    balance.release("two")
    assert balance.reserved == before
    balance.take(upload(1, SAMPLED, plan="three"))


def test_a_limit_that_is_lowered_after_a_reservation_stops_the_study_at_the_lower_one():
    balance = Balance(device="a", limit=LIMIT)
    balance.reserve(study("one"))
    balance.set_limit(Budget(epsilon=1.0, delta=1e-5))
    with pytest.raises(LedgerError, match="CH401"):
        for number in range(13):
            balance.take(upload(number, SAMPLED, plan="one"))
    assert 0 < len(balance.charges) < 13
    assert balance.epsilon <= 1.0


def test_a_crash_between_reservation_and_charge_counts_the_whole_study(tmp_path):
    path = tmp_path / "a.ledger"
    with Ledger.open(path, limit=LIMIT) as book:
        book.reserve(study("one"))
    whole = path.read_bytes()
    torn = whole + whole.splitlines(keepends=True)[-1][:90]
    path.write_bytes(torn)
    with Ledger.open(path) as book:
        assert book.balance.reserved == epsilon_of([SAMPLED] * 13, LIMIT.delta)
        assert (book.balance.epsilon, book.balance.left_of("one").total()) == (0.0, 13)
        with pytest.raises(LedgerError, match="CH401"):
            book.reserve(study("two"))
        book.charge(upload(1, SAMPLED, plan="one"))
    again = Ledger.read(path)
    assert again.balance.left_of("one").total() == 12
    assert statement_of(again).reserved.to_dict() == {"epsilon": again.balance.reserved, "uploads": 13}


def test_what_a_later_study_counts_as_is_kept_and_read_again(tmp_path):
    quiet = Poisson(noise_multiplier=9.0, probability=0.1, steps=10)
    with Ledger.open(tmp_path / "a.ledger", limit=LIMIT) as book:
        book.reserve(study("one", quiet))
        book.charge(upload(1, quiet, plan="one"))
        book.reserve(study("two", quiet))
        book.charge(upload(1, quiet, plan="two"))
        book.charge(upload(1, Gaussian(mu=0.01), plan="three"))
        reported = book.balance.reserved
    again = Ledger.read(tmp_path / "a.ledger")
    assert again.balance.reserved == reported
    assert [entry["kind"] for entry in again.entries] == ["reserve", "charge", "reserve", "charge", "charge"]
    assert 0.25 < again.entries[2]["counted"]["mu"] < 0.26  # half of z = 4.5's 0.506


def version_1(path, charges):
    """A ledger as version 1 wrote it: no reservations, and a header that says 1."""
    from choral.core import sealed

    bodies = [{"choral": "ledger", "version": 1, "device": "a", "epsilon": 2.0, "delta": 1e-5}]
    bodies += [{"kind": "charge", **charge.to_dict(), "at": "2026-01-01T00:00:00+00:00"} for charge in charges]
    seal = sealed.START
    with path.open("wb") as file:
        for body in bodies:
            line = sealed.line(seal, body)
            file.write(line)
            seal = line[:64]
    return path


def test_a_ledger_of_version_1_is_read_by_its_rule_and_says_so(tmp_path):
    quiet = Poisson(noise_multiplier=12.0, probability=0.1, steps=10)
    charges = [upload(n, quiet, plan=plan) for plan in ("one", "two") for n in range(4)]
    book = Ledger.read(version_1(tmp_path / "a.ledger", charges))
    assert book.balance.epsilon == book.balance.reserved == epsilon_of([quiet] * 8, 1e-5)
    assert "rule of version 1, which is not proved for studies" in statement_of(book).composed_by


def test_a_ledger_of_version_1_that_goes_on_counts_its_plans_as_studies(tmp_path):
    quiet = Poisson(noise_multiplier=12.0, probability=0.1, steps=10)
    charges = [upload(n, quiet, plan=plan) for plan in ("one", "two") for n in range(4)]
    path = version_1(tmp_path / "a.ledger", charges)
    with Ledger.open(path) as book:
        assert epsilon_of([quiet] * 8, 1e-5) < book.balance.reserved < 1.05 * epsilon_of([quiet] * 8, 1e-5)
        book.reserve(study("three", quiet, uploads=2))
        book.charge(upload(1, quiet, plan="three"))
        with pytest.raises(LedgerError, match="CH405"):
            book.charge(upload(1, quiet, plan="one"))
    again = Ledger.read(path)
    assert [entry["kind"] for entry in again.entries][-3:] == ["rule", "reserve", "charge"]
    assert "rule of version 1" in statement_of(again).composed_by


def test_a_run_of_version_1_goes_on_with_its_own_plan_up_to_the_limit(tmp_path):
    path = version_1(tmp_path / "a.ledger", [upload(n, SAMPLED, plan="one") for n in range(6)])
    with Ledger.open(path) as book:
        book.reserve(study("one", uploads=7))
        assert book.balance.reserved == epsilon_of([SAMPLED] * 13, LIMIT.delta)


def test_several_studies_need_hardly_more_noise_than_one_exact_composition_of_all():
    # The least budget for 2, 5 and 10 equal studies, chosen one after the other, against composing all at once.
    for studies, most in ((2, 1.006), (5, 1.007), (10, 1.008)):
        event = Poisson(noise_multiplier=4.6 * math.sqrt(studies), probability=0.1, steps=130)
        balance = Balance(device="a", limit=LIMIT)
        for number in range(studies):
            balance.reserve(study(f"{number}", event, uploads=1))
            balance.take(upload(number, event, plan=f"{number}"))
        assert 1.0 < balance.reserved / epsilon_of([event] * studies, LIMIT.delta) < most


def test_strict_studies_after_each_other_add_up_in_rho():
    rho = rho_for(epsilon=2.0, delta=(1 - LEAK) * 1e-5) / 4
    balance = Balance(device="a", limit=LIMIT)
    for number in range(4):
        balance.take(upload(number, Zcdp(rho=rho * (1 - 1e-9)), plan=f"{number}"))
    with pytest.raises(LedgerError, match="CH401"):
        balance.take(upload(5, Zcdp(rho=rho * 0.001), plan="more"))

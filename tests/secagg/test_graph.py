"""Graphs: symmetric, regular, connected; and their degrees, beside scipy and beside simulation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import hypergeom

from choral.core.errors import PlanError
from choral.core.masks import Graph, failure_bits, require_private
from choral.core.plan import SecureSum
from choral.run.planning import sparse
from choral.trees.lists import Circle


def names(count):
    return tuple(f"{number:04}" for number in range(count))


@settings(max_examples=60, deadline=None)
@given(st.integers(3, 60), st.data())
def test_a_sparse_graph_is_regular_symmetric_and_connected(count, data):
    degree = 2 * data.draw(st.integers(1, (count - 1) // 2))
    cohort = names(count)
    graph = Graph(cohort, data.draw(st.binary(max_size=8)), degree)
    near = {id: graph.neighbours(id) for id in cohort}
    for id in cohort:
        assert len(set(near[id])) == degree
        assert list(near[id]) == sorted(near[id])
        assert id not in near[id]
        assert all(id in near[other] for other in near[id])
    reached, edge = {cohort[0]}, {cohort[0]}
    while edge:
        edge = {other for id in edge for other in near[id]} - reached
        reached |= edge
    assert reached == set(cohort)


def test_a_complete_graph_joins_everybody():
    assert Graph(names(4), b"").neighbours("0002") == ("0000", "0001", "0003")


def test_the_context_shuffles_the_circle():
    """100 of 100 devices: the chance that one neighbourhood of 10 stays the same is about 1/C(99, 10) < 10^-13."""
    one, other = (Graph(names(100), context, 10) for context in (b"1", b"2"))
    assert all(one.neighbours(id) != other.neighbours(id) for id in names(100))


@pytest.mark.parametrize("degree", [0, -2, 3, 6, 7])
def test_degrees_that_make_no_harary_graph_are_refused(degree):
    with pytest.raises(PlanError, match="CH200"):
        Graph(names(6), b"", degree)


@pytest.mark.parametrize(("n", "k", "s"), [(200, 32, 18), (1000, 48, 27), (10_000, 54, 31)])
def test_the_bits_are_those_of_scipys_hypergeometric_tails(n, k, s):
    c = d = n // 10
    exposed = n * hypergeom.sf(s - 1, n - 1, c, k)
    stuck = n * hypergeom.sf(k - s, n - 1, d, k)
    torn = math.comb(n, 2) * math.exp(sum(math.log((c + d - i) / (n - i)) for i in range(k))) if c + d >= k else 0.0
    privacy, liveness = failure_bits(n, k, s, c, d)
    assert privacy == pytest.approx(-math.log2(exposed + torn), rel=1e-9)
    assert liveness == pytest.approx(-math.log2(stuck), rel=1e-9)


@pytest.mark.parametrize(("n", "k", "s"), [(100, 22, 11), (1000, 48, 27), (10_000, 54, 31)])
def test_the_degrees_of_the_design_are_safe(n, k, s):
    privacy, liveness = failure_bits(n, k, s, n // 10, n // 10)
    assert privacy >= 40
    assert liveness >= 20


def test_the_sparse_plan_is_the_sparsest_that_is_safe():
    secure = sparse(1000)
    assert (secure.neighbours, secure.threshold) == (48, 28)
    for threshold in range(1, 47):
        _, liveness = failure_bits(1000, 46, threshold, 100, 100)
        privacy, _ = failure_bits(900, 46, threshold, 100, 0)
        assert privacy < 40 or liveness < 20


def test_bounds_hold_in_simulation():
    """Small enough to see failures: how often a device is exposed, or the graph torn, against the bound, with 3 σ."""
    n, k, s, c, d, runs = 30, 4, 3, 6, 6, 4000
    draw = np.random.default_rng(7)
    failed = 0
    for _ in range(runs):
        order = draw.permutation(n)
        colludes, gone = order < c, order < c + d
        near = np.stack([np.roll(colludes, step) for step in (-2, -1, 1, 2)]).sum(axis=0)
        left = np.flatnonzero(~gone)
        gaps = np.diff(np.append(left, left[0] + n)) > k // 2
        failed += bool((near[~colludes] >= s).any() or gaps.sum() >= 2)
    privacy, _ = failure_bits(n, k, s, c, d)
    bound = min(1.0, 2.0**-privacy)
    assert failed > 0
    assert failed / runs <= bound + 3 * math.sqrt(bound / runs)


def test_a_plan_with_too_few_neighbours_is_refused():
    weak = SecureSum(
        cohort=1000, smallest_sum=900, threshold=12, colluders=100, adversary="curious", graph="harary", neighbours=20
    )
    with pytest.raises(PlanError, match=r"CH205 20 neighbours .* cohort of 1,000; 40 are needed"):
        require_private(weak, 1000)


def test_the_real_cohort_counts_and_not_only_the_plans():
    """The design's 48 and 27 are safe for 1,000 with 100 colluders, but not if only 900 of the 1,000 come."""
    tight = SecureSum(
        cohort=1000, smallest_sum=900, threshold=27, colluders=100, adversary="curious", graph="harary", neighbours=48
    )
    require_private(tight, 1000)
    with pytest.raises(PlanError, match="CH205"):
        require_private(tight, 900)


@pytest.mark.parametrize("n", [100, 300, 1000])
def test_the_sparse_plan_is_safe_for_every_cohort_that_may_meet(n):
    secure = sparse(n)
    for size in range(secure.smallest_sum, n + 1, 7):
        require_private(secure, size)


def test_a_complete_graph_needs_no_such_bound():
    require_private(SecureSum.for_cohort(10), 10)


def test_no_sparse_graph_is_found_where_none_is_safe():
    with pytest.raises(PlanError, match="CH205 no sparse graph on 10"):
        sparse(10, colluding=0.5, dropping=0.4)


@settings(max_examples=40, deadline=None)
@given(st.integers(3, 60), st.data())
def test_a_graph_by_positions_is_regular_symmetric_and_sorted(count, data):
    degree = 2 * data.draw(st.integers(1, (count - 1) // 2))
    graph = Circle(count, data.draw(st.binary(max_size=8)), degree)
    near = [graph.neighbours(position) for position in range(count)]
    for position, others in enumerate(near):
        assert len(set(others)) == degree and list(others) == sorted(others) and position not in others
        assert all(position in near[other] for other in others)


def test_every_order_of_positions_is_about_equally_likely():
    seen = [Circle(4, number.to_bytes(4, "big"), 2).neighbours(0) for number in range(3000)]
    counts = [seen.count(pair) for pair in ((1, 2), (1, 3), (2, 3))]
    assert sum((count - 1000) ** 2 / 1000 for count in counts) < 13.8  # chi-square of two degrees: one in a thousand


def test_words_that_are_equal_are_drawn_again_so_that_no_position_is_preferred(monkeypatch):
    drawn = iter(([5, 5, 1, 2], [4, 3, 2, 1], [1, 2, 3, 4]))

    class Fixed:
        def __init__(self, key):
            pass

        def words(self, count, bits):
            assert (count, bits) == (4, 64)
            return np.array(next(drawn), np.uint64)

    monkeypatch.setattr("choral.trees.lists.Stream", Fixed)
    assert Circle(4, b"ctx", 2).neighbours(0) == (1, 3) and next(drawn) == [1, 2, 3, 4]


def test_a_degree_that_no_circle_has_is_refused():
    for degree in (0, 3, 8, 9):
        with pytest.raises(PlanError, match="CH200"):
            Circle(8, b"ctx", degree)

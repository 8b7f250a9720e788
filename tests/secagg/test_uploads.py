"""Sums by threads have every word of every vector once, whatever the lengths, the threads and the order."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choral.core.errors import ConfigError
from choral.core.masks import Mask, add_masks, ring
from choral.server import uploads
from choral.server.uploads import ADDERS, KeptVectors, RoomForUploads, RunningSum, Uploads, add_vectors

LONG = 2**18 + 37  # words: no whole number of lines of the cache


@pytest.fixture
def small(monkeypatch):
    """Threads and several stretches for vectors of any length."""
    for name, size in (("WORTH_A_THREAD", 1), ("WORTH_WAITING_FOR", 1), ("STRETCH_BYTES", 256)):
        monkeypatch.setattr(uploads, name, size)


@pytest.mark.usefixtures("small")
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    bits=st.sampled_from([16, 32, 64]),
    words=st.integers(0, 400),
    threads=st.integers(1, 9),
    kept=st.builds(KeptVectors, waiting=st.integers(0, 5), sums=st.integers(1, 9)),
    asked=st.lists(st.sampled_from(["add", "add", "add", "subtract", "total"]), max_size=30),
    seed=st.integers(0, 2**32),
)
def test_whatever_is_asked_in_whatever_order_the_sum_is_that_of_one_thread(bits, words, threads, kept, asked, seed):
    draw, total = np.random.default_rng(seed), RunningSum(ring(bits), threads=threads, kept=kept)
    expected, added = np.zeros(words, ring(bits)), []
    for one in asked:
        if one == "add":
            vector = draw.integers(0, 2**bits, words, dtype=np.uint64).astype(ring(bits))
            total.add(vector)
            added.append(vector)
            expected += vector
        elif one == "subtract" and added:
            vector = added.pop(int(draw.integers(len(added))))
            total.subtract(vector)
            expected -= vector
        elif one == "total" and added:
            assert (total.total() == expected).all()
    assert (total.total() == expected).all() if added or expected.any() else not total.total().any()


@pytest.mark.parametrize("length", [1, 15, 16, 17, LONG])
@pytest.mark.parametrize("threads", [1, 2, 5, 64])
def test_threads_leave_out_no_word_and_add_none_twice(length, threads, monkeypatch):
    monkeypatch.setattr(uploads, "WORTH_WAITING_FOR", 0)
    total = np.zeros(length, "<u4")
    add_vectors(total, [np.ones(length, "<u4")] * 3, threads=threads)
    assert (total == 3).all()


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("allowed", [1, 2, 3, 100])
def test_a_sum_keeps_no_more_vectors_than_it_may_and_than_its_threads_fill_stretches(allowed):
    """4 threads with stretches of 256 bytes: 4 sums of short vectors, 2 of twice the stretch, 1 of all longer ones."""
    for words, most in ((64, 4), (127, 4), (128, 2), (192, 1), (1000, 1)):
        total = RunningSum(ring(32), threads=4, kept=KeptVectors(sums=allowed))
        for _ in range(9):
            total.add(np.ones(words, "<u4"))
        assert total.keeps.sums == min(most, allowed) and (total.total() == 9).all()


@pytest.mark.usefixtures("small")
def test_no_more_than_eight_threads_add_however_many_are_allowed():
    """More of them would wait for the interpreter, and the thread that receives vectors with them."""
    total = RunningSum(ring(32), threads=16, kept=KeptVectors(waiting=4, sums=17))
    for _ in range(20):
        total.add(np.ones(64, "<u4"))
    assert total.keeps.sums == 8 and (total.total() == 20).all()


def test_short_vectors_have_one_sum():
    total = RunningSum(ring(32), threads=4, kept=KeptVectors(sums=4))
    for _ in range(9):
        total.add(np.ones(64, "<u4"))
    assert total.keeps.sums == 1 and (total.total() == 9).all()


def test_nobody_waits_for_a_vector_as_long_as_few_are_under_way():
    total = RunningSum(ring(32), threads=2, kept=KeptVectors(waiting=3))
    vectors = [np.full(LONG, number, "<u4") for number in range(8)]
    for vector in vectors:
        total.add(vector)
        assert total.keeps.waiting <= 3
    assert (total.total() == 28).all() and not total.keeps.waiting
    assert all((vector == number).all() for number, vector in enumerate(vectors))  # nobody's vector moved


def test_uploads_are_added_taken_back_and_unmasked():
    words, work = np.arange(5, dtype="<u4"), Uploads(32)
    masked = words.copy()
    add_masks(masked, [Mask(bytes(32), adds=True)])
    work.add(1, masked.tobytes())
    work.add(2, words.tobytes())
    work.add(3, words.tobytes())
    assert sorted(work.vectors) == [1, 2, 3]
    work.take_back(3)
    assert sorted(work.vectors) == [1, 2]
    assert work.unmasked([Mask(bytes(32), adds=False)]).tolist() == (2 * words).tolist()
    assert Uploads(32).unmasked([]).tolist() == []


@pytest.mark.parametrize("kept", [(0, 1), (1, 3), (2, 2), (7, 9), (100, 1)])
def test_however_many_uploads_wait_and_whoever_is_taken_back_the_sum_is_the_same(kept):
    rng = np.random.default_rng(0)
    uploads = [rng.integers(0, 2**32, LONG, dtype="<u4") for _ in range(9)]
    work = Uploads(32, kept=KeptVectors(*kept), threads=3)
    for number, upload in enumerate(uploads):
        work.add(number, upload.data.cast("B"))
        if number == 4:
            work.take_back(2)  # whether it waits or not
    expected = sum(upload.astype(np.uint64) for number, upload in enumerate(uploads) if number != 2) % 2**32
    assert (work.unmasked([]) == expected).all()
    assert (uploads[0] == np.random.default_rng(0).integers(0, 2**32, LONG, dtype="<u4")).all()  # nobody's vector moved


def test_the_environment_says_how_much_memory_uploads_may_take(monkeypatch):
    monkeypatch.setenv("CHORAL_MEMORY", "7")
    assert RoomForUploads.of_environment() == RoomForUploads(7 * 2**20)
    monkeypatch.delenv("CHORAL_MEMORY")
    assert RoomForUploads.of_environment() == RoomForUploads(256 * 2**20)
    for text in ("-1", "much"):
        monkeypatch.setenv("CHORAL_MEMORY", text)
        with pytest.raises(ConfigError, match="CH102 CHORAL_MEMORY"):
            RoomForUploads.of_environment()


def test_all_vectors_that_a_server_keeps_are_within_the_memory_that_it_may_use():
    for size in (0, 1, 7, 100, 10**9):
        for upload in (1, 3, 50, 10**8):
            memory = RoomForUploads(size)
            (waiting, sums), aside = memory.kept(upload), memory.laid_aside(upload)
            assert 0 <= waiting <= 16 and sums >= 1
            assert (waiting + min(sums, ADDERS) - 1) * upload + aside == size and 4 * aside >= size

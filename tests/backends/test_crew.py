"""The server's work on several processes: the same integers as in one, whoever dies on the way."""

import gc
import io
import os
import signal

import numpy as np
import pytest

from choral.backends.crew import Crew, Resources, SharedWork
from choral.backends.crew_worker import receive, send, sum_of_masks
from choral.backends.wire import Wire
from choral.errors import ConfigError
from choral.protocol.round import Round
from choral.protocol.server_work import ServerWork
from choral.secagg.masks import CHUNK_BYTES, Mask, add_vectors
from tests.protocol.world import FIRST, SilentTransport, World

LONG = CHUNK_BYTES // 4 + 37  # words: no whole number of lines, and more than one chunk of keystream


@pytest.fixture(scope="module")
def crews():
    """Crews of one, two and three processes over the same terms, started once."""
    terms = World(parameters=100).terms
    made = {number: Crew(terms, number) for number in (1, 2, 3)}
    yield made
    for crew in made.values():
        crew.close()


class OnACrew(Wire):
    """A wire whose work is done by a given crew, however small it is."""

    def __init__(self, terms, transport, crew):
        super().__init__(terms, transport, Resources(processes=1))
        self._crew = crew


@pytest.mark.parametrize("number", [1, 2, 3])
def test_sums_with_and_without_drop_outs_are_the_same_to_the_integer(crews, number):
    world = World(parameters=100)
    quiet = OnACrew(world.terms, SilentTransport(world, {}), crews[number]).attempt(FIRST, range(10), world.model)
    assert world.agrees(quiet) and len(crews[number]) == number
    world = World(parameters=100, seed=1)
    total = OnACrew(world.terms, SilentTransport(world, {3: 1, 5: 2}), crews[number]).attempt(
        FIRST, range(10), world.model
    )
    assert total.count == 8 and world.agrees(total)


def test_every_process_adds_its_masks_and_turns_follow_each_other():
    terms = World(parameters=LONG).terms
    rng, width = np.random.default_rng(0), 2**terms.codec.word_bits
    uploads = [rng.integers(0, width, terms.words, dtype=f"u{terms.codec.word_bits // 8}") for _ in range(3)]
    masks = [Mask(os.urandom(32), adds=bool(number % 2)) for number in range(5)]
    crew = Crew(terms, 3)
    results = []
    for turn in range(3):  # in one process, on the crew, and a second turn there
        work = SharedWork(crew, together=turn) if turn else ServerWork(terms.codec.word_bits)
        for number, upload in enumerate(uploads):
            work.add(number, upload.data.cast("B"))
        work.take_back(1)
        assert sorted(work.vectors) == [0, 2] and bytes(work.vectors[2]) == uploads[2].tobytes()
        results.append(work.unmasked(masks))
    crew.close()
    assert (results[0] == results[1]).all() and (results[0] == results[2]).all()


@pytest.mark.parametrize("when", ["before the uploads", "after the uploads", "after the secrets"])
def test_a_process_that_dies_is_reported_and_nothing_is_lost(crews, when):
    world, crew = World(parameters=100), crews[2]
    work = SharedWork(crew)
    round = Round(world.muster(), world.model.tobytes(), work=work)

    def kill():
        os.kill(crew.pids[1], signal.SIGKILL)
        os.waitid(os.P_PID, crew.pids[1], os.WEXITED | os.WNOWAIT)

    with pytest.warns(RuntimeWarning, match="CH506 process 2 of 2, which unmasks sums, ended with status -9"):
        if when == "before the uploads":
            kill()
        world.step(round, silent={4})
        if when == "after the uploads":
            kill()
        world.step(round)
        if when == "after the secrets":
            kept = work.opened
            work.opened = lambda secrets: [kept(secrets), kill()][0]
        total = world.finish(round)
    assert total.count == 9 and world.agrees(total) and len(crew.pids) == 1
    assert round.findings.named == {}  # a secret that a process could not open is nobody's lie
    again = World(parameters=100, seed=2)
    assert again.agrees(OnACrew(again.terms, SilentTransport(again, {}), crew).attempt(FIRST, range(10), again.model))
    assert len(crew.pids) == 2  # the next turn begins with all of them


def test_processes_end_with_their_crew():
    crew = Crew(World().terms, 1)
    pids = crew.pids
    del crew
    gc.collect()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_message_that_was_cut_off_is_the_end_and_a_process_touches_no_other_words():
    pipe = io.BytesIO()
    send(pipe, [b"secret"])
    whole = pipe.getvalue()
    assert receive(io.BytesIO(whole)) is not None
    assert all(receive(io.BytesIO(whole[:size])) is None for size in range(len(whole)))
    words, mask = np.ones(64, "<u8"), Mask(bytes(32), adds=True)
    sum_of_masks(words[16:40], [mask, mask.undone()])
    assert words[:16].all() and not words[16:40].any() and words[40:].all()


def test_the_environment_says_what_a_server_may_use(monkeypatch):
    monkeypatch.setenv("CHORAL_PROCESSES", "3")
    monkeypatch.setenv("CHORAL_MEMORY", "7")
    assert Resources.of_environment() == Resources(processes=3, memory=7 * 2**20)
    for name, text in (("CHORAL_PROCESSES", "0"), ("CHORAL_PROCESSES", "many"), ("CHORAL_MEMORY", "-1")):
        with monkeypatch.context() as patched:
            patched.setenv(name, text)
            with pytest.raises(ConfigError, match=f"CH102 {name}"):
                Resources.of_environment()
    monkeypatch.delenv("CHORAL_PROCESSES")
    for cores, processes in ((2, 1), (4, 1), (5, 5), (16, 16)):  # the threads of one process use up to four
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, cores=cores: range(cores))
        assert Resources.of_environment().processes == processes


def test_small_turns_need_no_processes_and_large_ones_have_them(monkeypatch):
    terms = World().terms
    assert Resources(processes=2).crew_for(terms) is None
    monkeypatch.setattr("choral.backends.crew.WORTH_PROCESSES", terms.upload_bytes * 10)
    assert Resources(processes=1).crew_for(terms) is None
    monkeypatch.setattr("choral.backends.crew.Crew", lambda *given: given)
    crew = Resources(processes=2).crew_for(terms)
    assert crew == (terms, 2)
    assert Resources(processes=9, memory=3 * terms.upload_bytes).crew_for(terms) == (terms, 3)
    assert Resources(processes=9, memory=terms.upload_bytes).crew_for(terms) is None


@pytest.mark.parametrize("together", [1, 2, 3, 7, 100])
def test_however_many_uploads_wait_and_whoever_is_taken_back_the_sum_is_the_same(together):
    rng = np.random.default_rng(0)
    uploads = [rng.integers(0, 2**32, LONG, dtype="<u4") for _ in range(9)]
    work = ServerWork(32, together=together, threads=3)
    for number, upload in enumerate(uploads):
        work.add(number, upload.data.cast("B"))
        if number == 4:
            work.take_back(2)  # whether it waits or not
    expected = sum(upload.astype(np.uint64) for number, upload in enumerate(uploads) if number != 2) % 2**32
    assert (work.unmasked([]) == expected).all()
    assert (uploads[0] == np.random.default_rng(0).integers(0, 2**32, LONG, dtype="<u4")).all()  # nobody's vector moved


def test_uploads_that_wait_are_within_the_memory_that_a_server_may_use():
    for memory in (0, 1, 7, 100, 10**9):
        for size in (1, 3, 50, 10**8):
            together = Resources(processes=2, memory=memory).together(size)
            assert 1 <= together <= 16 and (together - 1) * size <= memory


@pytest.mark.parametrize("length", [1, 15, 16, 17, LONG])
@pytest.mark.parametrize("threads", [1, 2, 5, 64])
def test_threads_leave_out_no_word_and_add_none_twice(length, threads, monkeypatch):
    monkeypatch.setattr("choral.secagg.masks.WORTH_A_THREAD", 0)
    total = np.zeros(length, "<u4")
    add_vectors(total, [np.ones(length, "<u4")] * 3, threads=threads)
    assert (total == 3).all()

"""The server's work on several processes: the same integers as in one, whoever dies on the way."""

import contextlib
import errno
import fcntl
import gc
import io
import os
import signal
import subprocess
import threading
import warnings

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choral.backends.crew import AHEAD, MOST_IN_A_JOB, Crew, Resources, SharedWork, in_jobs
from choral.backends.crew_worker import AddMasks, ClearWords, receive, send
from choral.backends.wire import Wire
from choral.core.bonds import SealedSecret
from choral.core.errors import ConfigError
from choral.core.masks import ADDERS, CHUNK_BYTES, Mask, add_masks
from choral.server.round import Round
from choral.server.running_sum import KeptVectors
from choral.server.server_work import ServerWork
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
        work = SharedWork(crew, kept=KeptVectors(waiting=turn)) if turn else ServerWork(terms.codec.word_bits)
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


def test_a_message_that_was_cut_off_is_the_end_and_pieces_are_put_together():
    pipe = io.BytesIO()
    send(pipe, [b"secret"])
    whole = pipe.getvalue()
    assert receive(io.BytesIO(whole)) is not None
    assert all(receive(io.BytesIO(whole[:size])) is None for size in range(len(whole)))

    class Narrow(io.BytesIO):
        """A stream that takes and gives one byte at a time."""

        def write(self, data):
            return super().write(data[:1])

        def read(self, size):
            return super().read(min(size, 1))

    narrow = Narrow()
    send(narrow, [b"secret"])
    assert narrow.getvalue() == whole and receive(Narrow(whole)) == receive(io.BytesIO(whole))


def test_a_process_adds_to_its_own_words_and_begins_again_when_it_is_asked_to():
    crew = Crew(World(parameters=100).terms, 3)
    everything, masks = crew.parts.base, [Mask(os.urandom(32), adds=True) for _ in range(6)]
    crew.hand_out([], before=ClearWords())
    for _ in range(2):  # the second time in the place of the first
        outcomes = crew.hand_out((AddMasks(((mask.key, mask.adds),)) for mask in masks), before=ClearWords())
        expected = np.zeros_like(crew.parts)
        for mask, (process, _) in zip(masks, outcomes, strict=True):
            add_masks(expected[process], [mask])
        assert (crew.parts == expected).all()
    outside = np.ones(everything.size, bool)
    for start, stop in crew.ranges:
        outside[start:stop] = False
    assert outside.any() and not everything.reshape(-1)[outside].any()
    crew.close()


@given(items=st.integers(0, 3000), processes=st.integers(1, 40))
def test_jobs_have_every_item_once_and_shrink(items, processes):
    jobs = list(in_jobs(range(items), processes))
    assert [item for job in jobs for item in job] == list(range(items))
    sizes = [len(job) for job in jobs]
    assert sizes == sorted(sizes, reverse=True) and (not sizes or sizes[-1] == 1)


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_a_slow_process_has_few_jobs_and_one_that_dies_among_them_loses_none(end, monkeypatch):
    world = World(parameters=100)
    crew, masks = Crew(world.terms, 2), [Mask(os.urandom(32), adds=True) for _ in range(40)]
    slow, jobs, answered = crew.pids[1], len(list(in_jobs(masks, 2))), []

    def heard(stream, **limits):
        """The other process has answered all jobs that the slow one does not have: only now is that one heard."""
        answer = receive(stream, **limits)
        answered.append(answer)
        if len(answered) == jobs - AHEAD:
            os.kill(slow, end)
        return answer

    monkeypatch.setattr("choral.backends.crew.receive", heard)
    work, alone = SharedWork(crew), ServerWork(crew.bits)
    for one in (work, alone):
        one.add(0, bytes(world.terms.upload_bytes))
    os.kill(slow, signal.SIGSTOP)
    os.waitid(os.P_PID, slow, os.WSTOPPED | os.WNOWAIT)
    dies = end == signal.SIGKILL
    with pytest.warns(RuntimeWarning, match="CH506 process 2 of 2") if dies else contextlib.nullcontext():
        total = work.unmasked(masks)
    assert (total == alone.unmasked(masks)).all()
    assert answered.count(None) == dies and len(answered) == jobs - dies * (AHEAD - 1)
    crew.close()


def as_alone(crew, masks):
    """Whether a turn on this crew has the sum that one process has."""
    sums = []
    for work in (SharedWork(crew), ServerWork(crew.bits)):
        work.add(0, bytes(4 * 128))
        sums.append(work.unmasked(masks))
    return (sums[0] == sums[1]).all()


@pytest.fixture
def pair():
    crew = Crew(World(parameters=128, seed=0).terms, 2)
    yield crew
    crew.close()


def test_what_is_left_of_an_interrupted_turn_is_no_answer_of_the_next(pair):
    masks = [Mask(os.urandom(32), adds=True) for _ in range(9)]

    def interrupted():
        yield from (AddMasks(((mask.key, mask.adds),)) for mask in masks[:5])
        raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            pair.hand_out(interrupted(), before=ClearWords())
        assert as_alone(pair, masks) and len(pair.pids) == 2


def test_a_process_that_died_between_two_turns_is_reported_each_time_and_replaced(pair):
    masks = [Mask(os.urandom(32), adds=True) for _ in range(3)]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        for _ in range(3):
            os.kill(pair.pids[1], signal.SIGKILL)
            os.waitid(os.P_PID, pair.pids[1], os.WEXITED | os.WNOWAIT)
            assert as_alone(pair, masks) and len(pair.pids) == 2
    assert ["CH506" in str(one.message) for one in caught] == [True] * 3


def test_where_no_process_can_be_started_again_the_others_do_its_work(pair, monkeypatch):
    os.kill(pair.pids[0], signal.SIGKILL)
    os.waitid(os.P_PID, pair.pids[0], os.WEXITED | os.WNOWAIT)

    def full(*_, **__):
        raise OSError(errno.EAGAIN, "no more processes")

    monkeypatch.setattr("choral.backends.crew.subprocess.Popen", full)
    with pytest.warns(RuntimeWarning, match="CH506 process 1 of 2"):
        assert as_alone(pair, [Mask(os.urandom(32), adds=True) for _ in range(3)]) and len(pair.pids) == 1


def test_a_stopped_process_does_not_keep_the_server_from_ending(pair):
    pids = pair.pids
    os.kill(pids[0], signal.SIGSTOP)
    pair.close()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize("answer", [b"\xc2", b"\x90", b"\xff", b"\x92\xc4\x01x\xc4\x01y", b"text"])
def test_what_is_no_answer_is_no_work_done(pair, monkeypatch, answer):
    def other(stream, **limits):
        assert receive(stream, **limits) is not None
        pair.parts[:] = 7  # whatever lies there
        return answer

    monkeypatch.setattr("choral.backends.crew.receive", other)
    assert as_alone(pair, [Mask(os.urandom(32), adds=True) for _ in range(5)])
    sealed = SealedSecret("x" * 20, bytes(32), bytes(32), 1, ())
    assert SharedWork(pair).opened([sealed]) == [None]


@pytest.mark.parametrize(("envelope", "most"), [(100, 50), (5_000, 11), (100_000, 1)])
def test_a_job_of_secrets_is_no_longer_than_a_pipe_holds_however_large_they_are(pair, monkeypatch, envelope, most):
    """Else a slow process would keep the server waiting until it takes the job that is ahead."""
    given, hand_out = [], pair.hand_out

    def seen(jobs, **options):
        given.extend(jobs := list(jobs))
        return hand_out(jobs, **options)

    monkeypatch.setattr(pair, "hand_out", seen)
    sealed = SealedSecret("x" * 20, bytes(32), bytes(32), 2, ((1, "y", bytes(32), bytes(envelope)),))
    assert SharedWork(pair).opened([sealed] * 500) == [None] * 500
    assert max(len(job.secrets) for job in given) == most and sum(len(job.secrets) for job in given) == 500
    assert all(len(msgspec.msgpack.encode(job)) < 2**16 for job in given if len(job.secrets) > 1)


def test_a_longer_message_than_is_allowed_is_the_end():
    pipe = io.BytesIO()
    send(pipe, bytes(100))
    assert receive(io.BytesIO(pipe.getvalue()), most=102) is not None
    assert receive(io.BytesIO(pipe.getvalue()), most=101) is None


def test_processes_take_no_module_from_the_folder_where_the_server_was_started(tmp_path, monkeypatch):
    (tmp_path / "msgspec.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    crew = Crew(World(parameters=100).terms, 1)
    assert crew.hand_out([AddMasks(())]) == [(0, b"\xc3")]
    crew.close()


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
    assert Resources(processes=9, memory=12 * terms.upload_bytes).crew_for(terms) == (terms, 3)
    assert Resources(processes=9, memory=7 * terms.upload_bytes).crew_for(terms) is None


@pytest.mark.parametrize("kept", [(0, 1), (1, 3), (2, 2), (7, 9), (100, 1)])
def test_however_many_uploads_wait_and_whoever_is_taken_back_the_sum_is_the_same(kept):
    rng = np.random.default_rng(0)
    uploads = [rng.integers(0, 2**32, LONG, dtype="<u4") for _ in range(9)]
    work = ServerWork(32, kept=KeptVectors(*kept), threads=3)
    for number, upload in enumerate(uploads):
        work.add(number, upload.data.cast("B"))
        if number == 4:
            work.take_back(2)  # whether it waits or not
    expected = sum(upload.astype(np.uint64) for number, upload in enumerate(uploads) if number != 2) % 2**32
    assert (work.unmasked([]) == expected).all()
    assert (uploads[0] == np.random.default_rng(0).integers(0, 2**32, LONG, dtype="<u4")).all()  # nobody's vector moved


def test_all_vectors_that_a_server_keeps_are_within_the_memory_that_it_may_use():
    for memory in (0, 1, 7, 100, 10**9):
        for size in (1, 3, 50, 10**8):
            for processes in (0, *(number for number in (2, 16) if 4 * number * size <= memory)):
                resources = Resources(processes=max(1, processes), memory=memory)
                (waiting, sums), aside = resources.kept(size), resources.laid_aside(size, processes)
                assert 0 <= waiting <= 16 and sums >= 1
                own_sums = min(sums, max(processes, ADDERS), 8) - 1
                assert (waiting + own_sums + processes) * size + aside == memory and 4 * aside >= memory


def test_a_process_that_answers_while_it_is_spoken_to_does_not_stop_the_server(monkeypatch):
    """With pipes of one page, the least that Linux gives, and more secrets than answers fit in there."""
    sealed, start = SealedSecret("x" * 20, bytes(32), bytes(32), 1, ()), subprocess.Popen

    def narrow(*command, **options):
        process = start(*command, **options)
        for pipe in (process.stdin, process.stdout) if hasattr(fcntl, "F_SETPIPE_SZ") else ():
            assert fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 4096) == 4096
        return process

    monkeypatch.setattr("choral.backends.crew.subprocess.Popen", narrow)
    crew = Crew(World(parameters=100).terms, 2)
    answer = io.BytesIO()
    send(answer, [bytes(32)] * MOST_IN_A_JOB)  # of a job in which every secret opens
    assert AHEAD * len(answer.getvalue()) <= 4096
    found = []
    asking = threading.Thread(target=lambda: found.extend(SharedWork(crew).opened([sealed] * 20_000)), daemon=True)
    asking.start()
    asking.join(60)
    stuck = asking.is_alive()
    crew.close()  # which also ends the wait of a server that is stuck
    assert not stuck and len(found) == 20_000

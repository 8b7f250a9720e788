"""Nothing that is decided depends on the time of day: deadlines are counted, and stamps are only stamps."""

import ast
import itertools
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import choral
from choral.core import ledger as ledger_module
from choral.core.errors import DeploymentError
from choral.core.ledger import Ledger
from choral.deploy import agent, approving, certificates
from choral.deploy.enrolment import prepare
from choral.deploy.services import serve_study
from choral.record import read_run
from choral.report.verify import verify
from choral.run import folder
from tests.run.consortium import JOB, Consortium, Sockets, agents

# Who asks for the time of day, and what for; everybody else counts seconds by time.monotonic.
ASK = {
    "backends/flower/reach.py": "is this clock right?",
    "backends/flower/api.py": "Flower's headers hold a signed time",
    "core/ledger.py": "a stamp on every entry",
    "deploy/agent.py": "a stamp on every line of the log",
    "deploy/certificates.py": "from when to when a certificate is valid",
    "run/folder.py": "stamps in the run's folder",
    "deploy/serving.py": "counters of a restored folder begin above those used; until when a server waits",
    "deploy/approving.py": "a stamp on an approval",
}
ROOM = Path(choral.__file__).parent


def jumping(*days):
    """A datetime whose now() is wrong by these days, in turns."""
    turns = itertools.cycle(days)

    class Wrong(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + timedelta(days=next(turns))

    return Wrong


def asks_for_the_time(path):
    names = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "datetime.today", "date.today"}
    nodes = ast.walk(ast.parse(path.read_text()))
    return any(isinstance(node, ast.Attribute) and ast.unparse(node) in names for node in nodes)


def test_the_time_of_day_is_asked_for_in_these_files_only():
    assert {str(path.relative_to(ROOM)) for path in ROOM.rglob("*.py") if asks_for_the_time(path)} == set(ASK)


@pytest.fixture
def study(tmp_path):
    made = Consortium(tmp_path, job=JOB.replace("rounds = 3", "rounds = 2"))
    made.approve()
    return made


def test_clocks_that_jump_by_days_in_mid_round_change_nothing(study, monkeypatch):
    for module in (ledger_module, agent, approving, folder):
        monkeypatch.setattr(module, "datetime", jumping(1, -1))
    right, days = time.time, itertools.cycle((1, -1))
    monkeypatch.setattr(time, "time", lambda: right() + 86400 * next(days))
    with agents(study.homes):
        study.conductor(Sockets(study.homes)).run()
    record = read_run(next((study.study / "runs").iterdir()))
    assert [line.included for line in record.rounds] == [(0, 1, 2)] * 2
    assert all(0 <= line.seconds < 3600 for line in record.rounds)
    assert [finding.wrong for finding in verify(record.folder)] == [()] * 7
    stamps = []
    for home in study.homes.values():
        entries = [entry for entry in Ledger.read(home.ledger_path).entries if entry["kind"] == "charge"]
        assert [(entry["round"], entry["attempt"]) for entry in entries] == [(1, 0), (2, 0)]
        stamps.append([entry["at"] for entry in entries])
    assert any(first > second for first, second in stamps)  # the clocks did jump


def test_a_server_whose_clock_makes_its_certificate_invalid_says_so_before_anything_is_started(study, monkeypatch):
    monkeypatch.setattr(certificates, "datetime", jumping(-2))
    today = f"{datetime.now(UTC) - timedelta(days=2):%Y-%m-%d}"
    with pytest.raises(DeploymentError, match=rf"CH906 CN=127\.0\.0\.1 .*this machine's clock says {today} .*NTP"):
        next(serve_study(study.study, as_root=True))


def test_a_certificate_of_ones_own_that_is_outdated_is_refused_before_anything_is_made(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(certificates, "datetime", jumping(-900))
        authority = certificates.new_authority("an organisation")
        server = certificates.server_certificate(authority, "fl.example.org")
    for name, text in (("a", authority.certificate), ("s", server.certificate), ("k", server.key), ("j", JOB)):
        (tmp_path / name).write_text(text)
    own = {"certificate": tmp_path / "s", "key": tmp_path / "k", "authority": tmp_path / "a"}
    with pytest.raises(DeploymentError, match=r"CH906 CN=fl\.example\.org"):
        prepare(tmp_path / "study", tmp_path / "j", "fl.example.org:9092", **own)
    assert not (tmp_path / "study").exists()

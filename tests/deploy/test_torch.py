"""A deployment of a PyTorch module: sites run it from the file that they named, and their ledgers are charged by S5."""

import pytest

from choral.core.errors import TrustError
from choral.core.ledger import Ledger
from choral.record import read_run
from choral.report.verify import verify
from tests.run.consortium import JOB, Consortium, Sockets, agents

pytest.importorskip("torch", reason="the extra choral[torch] is not installed")

CODE = """
from torch import nn

import choral


def net(features, classes):
    module = nn.Sequential(nn.Linear(features, 4), nn.ReLU(), nn.Linear(4, classes))
    return choral.torch(module, nn.functional.cross_entropy, features=features, classes=classes)
"""


def test_sites_train_a_module_that_they_trust_and_the_run_verifies(tmp_path, monkeypatch):
    code = tmp_path / "torch_net_of_a_site.py"
    code.write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)  # the coordinator has it installed; a site takes it from its own file only
    job = JOB.replace("rounds = 3", "rounds = 1")
    study = Consortium(tmp_path, job=job + '[model]\nkind = "torch_net_of_a_site:net"\n')
    with pytest.raises(TrustError, match=r'CH603.*it runs the code of "torch_net_of_a_site:net" here'):
        study.approve("hill")
    study.approve(models=[f"torch_net_of_a_site:net={code}"])
    with agents(study.homes):
        study.conductor(Sockets(study.homes)).run()
    folder = next((study.study / "runs").iterdir())
    record = read_run(folder)
    assert len(record.rounds) == 1
    assert [len(Ledger.read(home.ledger_path).balance.charges) for home in study.homes.values()] == [1, 1, 1]
    assert record.result.privacy.against_everyone.rule == "S5"
    assert all(not finding.wrong for finding in verify(folder))

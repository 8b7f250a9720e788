"""What a site has when a study is over: the model that it signed, its receipt, and what its ledger proves."""

import hashlib
from pathlib import Path

import msgspec
import numpy as np

from choral.accounting.ledger_statement import statement_of
from choral.core.errors import StorageError
from choral.core.ledger import Ledger
from choral.deploy.home import Home
from choral.deploy.personal import shared_model
from choral.record import PAGES, KeptReceipt, SiteEnd, Statement, converted, read_json
from choral.run.agreement import UNSIGNED, Agreement
from choral.run.folder import parameter_bytes
from choral.run.statement import privacy_statement

PAGE = "result.html"


def site_end(home: Home, passphrase: str | None = None) -> SiteEnd:
    """What this site has of its approved study, every part checked against the others; CH802 before it has signed."""
    study, approval = home.approved(home.vault(passphrase))
    path = home.receipt_path(study)
    if not home.finished(study):
        raise StorageError(
            "CH802",
            f"the study {study.file.name} is not finished here.",
            where=str(home.path),
            why="A site signs when the last round is over, and has its result from then on.",
            fix="Keep choral device run going until it says that the study is finished.",
        )
    receipt = converted(read_json(path), KeptReceipt, path)
    parameters = shared_model(home, study)  # refuses any other model than the one that was signed
    after = statement_of(Ledger.read(home.ledger_path))
    return SiteEnd(
        device=home.joined.name,
        study=study.file.name,
        study_digest=study.digest.hex(),
        safety_number=study.safety_number,
        run=study.file.run,
        approved=approval.at,
        table=Path(approval.data).name,
        rows=approval.rows or study.plan.rows,
        rows_known=approval.rows > 0,
        columns=study.reads,
        label=study.target.name,
        parties=study.terms.ids,
        server=study.file.address,
        plan=study.plan,
        against=study.settled.costs.against,
        privacy=claimed_of_the_run(study, home.joined.name, receipt.paid or 0),
        paid=receipt.paid or 0,
        record=receipt.record,
        model=hashlib.sha256(parameter_bytes(parameters)).hexdigest(),
        ledger=receipt.ledger,
        limit=after.limit,
        reserved=after.reserved.epsilon,
        spent=after.spent,
        with_secure_sum=after.with_secure_sum,
        pages=1 if study.file.format == UNSIGNED else PAGES,
    )


def claimed_of_the_run(study: Agreement, device: str, paid: int) -> Statement:
    """The statement of the run by the public numbers of its plan, with every upload that this site has paid for.

    It is the server's own where all rounds were done and no attempt failed.
    """
    costs = study.settled.costs
    rounds = costs.allowed_rounds.copy()
    own = costs.names.index(device)
    rounds[own] = np.maximum(rounds[own], paid)
    return msgspec.structs.replace(privacy_statement(costs, rounds, refused={}), devices=None)

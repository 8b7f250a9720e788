"""What a site has when a study is over, as values: what its page shows, and what a check computes again."""

from choral.core.plan import Against, Plan
from choral.record.fields import Record
from choral.record.ledgers import LedgerLimit, LedgerOfSums, Spent
from choral.record.losses import Statement


class SiteEnd(Record, frozen=True, kw_only=True):
    """One study's end at one site; everything in it can be computed again from the site's home."""

    device: str
    study: str
    study_digest: str
    safety_number: str
    run: str
    approved: str
    table: str  # the name of its file
    rows: int  # that the site trained on, or that the plan asks for at least where an older version approved it
    rows_known: bool
    columns: tuple[str, ...]
    label: str
    parties: tuple[str, ...]
    server: str  # the address
    plan: Plan
    against: Against
    privacy: Statement  # of the run, by the public numbers of the plan: what the coordinator's report claims, too
    paid: int  # uploads of this run that the ledger paid for
    record: str  # the digest of the run's record, as this site signed it
    model: str  # SHA-256 of the final parameters, as this site signed them
    ledger: str  # the ledger's lines and its last seal when the site signed
    limit: LedgerLimit
    reserved: float  # what is proved of the whole ledger: all uploads that studies have reserved or made
    spent: Spent
    with_secure_sum: LedgerOfSums | None = None
    pages: int = 1  # the form of pages when the study was enrolled, or a later one: it has no page of an earlier one

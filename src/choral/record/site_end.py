"""What a site has when a study is over, as values: what its page shows, and what a check computes again."""

from choral.record.fields import Record
from choral.record.ledgers import LedgerLimit, LedgerOfSums, Spent


class SiteEnd(Record, frozen=True, kw_only=True):
    """One study's end at one site; everything in it can be computed again from the site's home."""

    device: str
    study: str
    study_digest: str
    safety_number: str
    run: str
    approved: str
    table: str  # the name of its file
    paid: int  # uploads of this run that the ledger paid for
    record: str  # the digest of the run's record, as this site signed it
    model: str  # SHA-256 of the final parameters, as this site signed them
    ledger: str  # the ledger's lines and its last seal when the site signed
    limit: LedgerLimit
    reserved: float  # the figure that is proved: all uploads that studies have reserved or made
    spent: Spent
    with_secure_sum: LedgerOfSums | None = None

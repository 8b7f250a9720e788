"""What a verified run proves and what has to be taken on trust, in plain words: the last line of `choral verify`."""

from dataclasses import dataclass

from choral.record import DEVICES, RunRecord
from choral.report import words
from choral.report.signed import Outside, signers, version_of


@dataclass(frozen=True, kw_only=True)
class ProvedAndTrusted:
    """Two sentences without their first words."""

    proved: str
    trusted: str


def signed_sentence(record: RunRecord) -> str:
    """What the check of the signatures is called: what they cover, and in a deployment how many there are."""
    if record.about.traits.deployed:
        signed, unsigned = signers(record)
        return f"{len(signed)} of {words.count(len(signed) + len(unsigned), 'site')} signed the whole record"
    if version_of(record) == 1:
        return "every device signed the plan, the model and its ledger (by an older version: nothing else)"
    return "every device signed the whole record"


def standing(record: RunRecord, outside: Outside, *, other_pages: bool) -> ProvedAndTrusted:
    """What the checks prove of a run in which nothing is wrong, and what they can't."""
    proved, trusted = _of_kind(record, outside)
    if other_pages:
        trusted.append("the words of a page that another version wrote, or whose sentences were reworded")
    return ProvedAndTrusted(proved="; ".join(proved), trusted="; ".join(trusted))


def _of_kind(record: RunRecord, outside: Outside) -> tuple[list[str], list[str]]:
    deployed = record.about.traits.deployed
    source = "the uploads that the server counts" if deployed else "the ledgers"
    follows = f"every ε follows from {source}"
    signed, unsigned = signers(record)
    if not signed:
        if deployed:
            return [follows], ["all that the server wrote, also that this was a deployment: an older version, unsigned"]
        return [follows], ["all that the files say: nobody signs a run that protects nobody"]
    if version_of(record) == 1:
        covers = (
            "every device signed the plan, the model and its ledger (signed by an older version: covers these only)"
        )
        rest = "the rounds, the test figures, the data's description and the kind of the run"
        return [follows, covers], [rest, *_keys(record, outside)]
    if not deployed:
        signatures = f"all {words.count(len(signed), 'device')} signed the whole record{_compared(outside)}"
        return [follows, signatures], [
            "the test figures and the data's description, by whoever ran it",
            *_keys(record, outside),
        ]
    signatures = (
        f"{len(signed)} of {words.count(len(signed) + len(unsigned), 'site')} signed the study, the model, "
        f"their payments and this record{_compared(outside)}"
    )
    trusted = ["the server's own account of the rounds and its test figures, as they stood when the sites signed"]
    if unsigned:
        trusted.append(f"what was paid by {', '.join(sorted(unsigned)[:8])}, who did not sign")
    return [follows, signatures], [*trusted, *_keys(record, outside)]


def _compared(outside: Outside) -> str:
    """With which keys, if any came another way."""
    if outside.keys:
        return " with the keys of the roster that was given"
    return f", {words.count(len(outside.receipts), 'receipt')} compared" if outside.receipts else ""


def _keys(record: RunRecord, outside: Outside) -> list[str]:
    """Why a signature alone does not show whose it is, and what would."""
    kept = (record.folder / DEVICES).exists()
    own = {receipt.device for receipt in outside.receipts}  # whoever handed in a receipt handed in its key with it
    if not kept and (outside.keys or own >= set(signers(record)[0])):
        return []
    if record.about.traits.deployed:
        return ["that STUDY is the number that the sites approved (compare it, or give --roster study.toml)"]
    if kept:
        return [f"whoever has had this folder: the devices' private keys still lie in {DEVICES}/"]
    return [
        "that KEYS are the run's own: whoever can rewrite the whole folder can sign it again with other keys "
        "(compare them with a note from the run's end, or give --roster)"
    ]

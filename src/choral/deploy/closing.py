"""The end of a deployment: every site that is there signs the record, and the result counts what each has paid for."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from choral.backends.wire import Connected
from choral.core.errors import ChoralError
from choral.core.messages import (
    REASON_BYTES,
    Close,
    CloseEarly,
    Ending,
    Refusal,
    Signed,
    Turn,
    Vector,
    decode,
    encode,
    malformed,
)
from choral.core.signed import Closing
from choral.core.terms import Terms
from choral.record import Outcome, Signer, read_json
from choral.run.folder import hashes, write_json
from choral.run.places import more_often
from choral.run.signatures import entry_of, parameter_bytes, record_digest, write_signatures

SILENT, CLOSING = "did not answer", "closing.json"


def mark_closing(folder: Path, why: str) -> None:
    """Write down that the run is over, and why, before a site signs: one that has signed takes no turn any more."""
    if closing_reason(folder) is None:
        write_json(folder / CLOSING, {"why": why})


def closing_reason(folder: Path) -> str | None:
    """Why the run is over, if its sites may have been asked to sign."""
    path = folder / CLOSING
    return str(read_json(path)["why"]) if path.exists() else None


def close(
    folder: Path,
    terms: Terms,
    transport: Connected,
    result_of: Callable[[list[int]], Outcome],
    *,
    counted: NDArray[np.int64],
    most: int,
    turn: Turn,
    early: str,
    parameters: NDArray[np.float32],
) -> Outcome:
    """The result of a run that is over; signatures.json is written with what every site said.

    `counted` is how often the server counts each device as charged. A site may have paid for an upload that never
    arrived; then `result_of` is asked again with that site in its list, so that the claim covers it, and the sites sign
    that one. More than `most` payments can't be true. `early` is why the run ends before its last round, if it does:
    sites sign no such end without it.
    """
    lost: list[int] = []
    for _ in range(2):
        result = result_of(lost)
        entries = _ask(
            terms,
            transport,
            _end(turn, record_digest(result.to_dict(), hashes(folder)), early),
            parameter_bytes(parameters),
            most=most,
        )
        unseen = more_often(np.array([entry.paid or 0 for entry in entries]), counted)
        if lost or not unseen:
            break
        lost = unseen
    write_signatures(folder, entries)
    return result


def _end(turn: Turn, record: bytes, early: str) -> Ending:
    if not early:
        return Close(turn=turn, record=record)
    words = early.encode()
    if len(words) > REASON_BYTES:
        words = early.encode()[: REASON_BYTES - 3].decode(errors="ignore").encode() + "…".encode()
    return CloseEarly(turn=turn, record=record, reason=words)


def _ask(terms: Terms, transport: Connected, message: Ending, model: bytes, *, most: int) -> list[Signer]:
    """An entry for every device; who does not sign is named with the reason, and costs its signature only."""
    bundles = terms.whole.bundles
    entries = [entry_of(bundle, why=SILENT) for bundle in bundles]
    frame = encode(message, model)
    try:
        for sender, reply in transport.exchange(dict.fromkeys(sorted(transport.present()), frame)):
            try:
                entries[sender] = _answered(terms, sender, reply, message.record, model, most=most)
            except ChoralError as error:
                entries[sender] = entry_of(bundles[sender], why=error.code)
    except ChoralError:  # of the transport: whoever has answered by now has signed
        pass
    return entries


def _answered(terms: Terms, sender: int, reply: Vector, record: bytes, model: bytes, *, most: int) -> Signer:
    said, _ = decode(reply, vector_bytes=0, records_bytes=terms.records_bytes)
    bundle = terms.whole.bundles[sender]
    if isinstance(said, Refusal):
        return entry_of(bundle, why=said.code)
    if not isinstance(said, Signed) or said.device != sender or said.paid > most:
        raise malformed("no answer to the end of a run")
    closing = Closing(
        run=terms.plan,
        roster=terms.roster_digest,
        record=record,
        model=hashlib.sha256(model).digest(),
        paid=said.paid,
        receipt=said.receipt,
    )
    closing.check(bundle, said.signature)
    return entry_of(bundle, signed=closing, signature=said.signature)

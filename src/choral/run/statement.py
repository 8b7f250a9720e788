"""What may be claimed of a run, in numbers: the three ε, each with its rule and adversary, and who has spent what."""

from dataclasses import replace
from typing import Any

from choral.plan import SecureSum
from choral.privacy.account import account_of
from choral.privacy.rules import ADJACENCY, with_secure_sum
from choral.run.books import Books
from choral.run.study import Study

MOST_DEVICES_LISTED = 200


def privacy_statement(study: Study, books: Books) -> dict[str, Any]:
    """The statement for the device that has lost most; docs/run-folder.md has the form."""
    spent = books.spent()
    worst = max(range(len(spent)), key=lambda device: spent[device])
    rounds = max(1, int(books.rounds[worst]))
    delta = study.limits[worst].delta
    if study.plan.noise == 0:
        return {"delta": delta, "adjacency": ADJACENCY, "none": "no noise was added: nothing is protected"}
    part = study.exposure(worst, rounds)
    told = account_of(part, delta)
    summed, everyone = told["proved"]["with_secure_sum"], told["proved"]["against_everyone"]
    return {
        "delta": delta,
        "adjacency": ADJACENCY,
        "against_everyone": {
            "rule": everyone["rule"],
            "adversary": everyone["adversary"],
            # From the events in the ledgers, so with the small shares of δ that batch room and range take.
            "epsilon": spent[worst],
        },
        "with_secure_sum": summed and {**summed, "colluders": study.secure.colluders},
        "no_certificate": told["proved"]["no_certificate"],
        "published": {"rule": "Theorem 1", **{key: told["paper"][key] for key in ("epsilon", "valid", "because")}},
        "by_delta": [[d, study.spent(worst, rounds, d)] for d in (1e-4, 1e-5, 1e-6, 1e-7)],
        "by_colluders": [[c, _with_colluders(study, worst, rounds, c, delta)] for c in range(study.plan.cohort)],
        "devices": [
            {
                "name": name,
                "rounds": int(books.rounds[device]),
                "epsilon": spent[device],
                "limit": study.limits[device].epsilon,
                "full": bool(books.rounds[device] >= study.allowed_rounds[device]),
            }
            for device, name in enumerate(study.data.records.names[:MOST_DEVICES_LISTED])
        ],
    }


def _with_colluders(study: Study, device: int, rounds: int, colluders: int, delta: float) -> float | None:
    """ε with the secure sum if so many devices collude with a curious server; None where nothing more is proved."""
    secure: SecureSum = study.secure
    honest = secure.smallest_sum - colluders
    if honest < 1:
        return None
    part = replace(
        study.exposure(device, rounds),
        colluders=colluders,
        dropouts=study.plan.cohort - secure.smallest_sum,
    )
    loss = with_secure_sum(part)
    return None if loss is None else loss.epsilon(delta)

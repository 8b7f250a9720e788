"""What the owner of a site's data agrees to; it wins over whatever a server proposes."""

from dataclasses import replace
from pathlib import Path

import msgspec

from choral.config import BUILT_IN
from choral.core.errors import TrustError
from choral.core.keys import HYBRID, require_available
from choral.core.plan import Budget
from choral.core.printable import count
from choral.run.agreement import Agreement
from choral.run.code import Code
from choral.tables.encoder import Encoder

DELTA, CROWD = 1e-5, 2


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the owner of the data agrees to, whatever a server proposes."""

    epsilon: float
    epsilon_sum: float | None = None  # the limit against a server that sees only sums, where the owner sets one
    delta: float = DELTA
    crowd: int = CROWD  # honest devices, this one among them, in any sum that the study's adversary can open
    colluders: int = 0  # devices that the study must count as helping its server
    curious: bool = False  # a secure sum that withstands only a server that follows the protocol will do
    struck: list[str] = []  # names of questions, and columns, that are not answered here, whatever the study allows
    probes: bool = False  # the server may ask for projections of this device's own noisy update, and open some turns
    models: list[str] = []  # "module:function" of others, which runs here; with "=FILE" from that file
    card_keys: bool = False  # keys of the cards will do, where a device of the study can't agree on others
    label: str = ""  # what the owner calls the data; shown here only
    encoder: str = ""  # the file through which this site's rows pass, where the study has an encoder

    @property
    def budget(self) -> Budget:
        """The most that the data may lose, in all runs together."""
        return Budget(epsilon=self.epsilon, delta=self.delta)

    @property
    def _files(self) -> dict[str, str]:
        """The file of each trusted name; empty where it is installed."""
        return {name: file for name, _, file in (model.partition("=") for model in self.models)}

    def code_of(self, study: Agreement) -> Code | None:
        """The code that the study's model runs here, where the owner says that it is; None of a model of choral."""
        kind = study.job.model_kind
        if kind in BUILT_IN:
            return None
        file = self._files[kind]
        return Code.located(kind, Path(file).expanduser() if file else None)

    def check(self, study: Agreement) -> None:
        """Nothing, or CH603 with what is weaker than this policy; no code of the study's model has run by then."""
        kind, secure = study.job.model_kind, study.secure
        if kind not in (*BUILT_IN, *self._files):
            raise weaker(f'it runs the code of "{kind}" here', f"--trust-model {kind}=FILE, once you have read it")
        if study.job.data.encoder is not None and not self.encoder:
            raise weaker(
                f"its rows pass through the encoder {study.job.data.encoder_file}, and no file is named here",
                f"--encoder FILE, whose SHA-256 must be {study.job.data.encoder_sha256}",
            )
        if study.plan.noise <= 0:
            raise weaker("it adds no noise", "a study with epsilon in [privacy]")
        if not secure.lying and not self.curious:
            raise weaker("its sums withstand only a server that follows the protocol", "--allow-curious")
        if study.job.privacy.against != "everyone" and self.epsilon_sum is None:
            raise weaker(
                "its ε holds only if the secure sum does, and the policy has a limit against everyone alone",
                "--max-epsilon-sum, and a --max-epsilon for the case that the sum does not hold",
            )
        if study.plan.probes and not self.probes:
            raise weaker(
                f"its server asks for {count(study.plan.probes, 'projection')} of this device's own noisy update "
                f"per round, and may see all of it in {count(study.plan.opened_turns, 'round')}; ε counts that already",
                "--allow-probes",
            )
        if secure.colluders < self.colluders:
            raise weaker(
                f"it counts {count(secure.colluders, 'device')} as helping its server, "
                f"the policy wants {self.colluders}",
                f"--colluders {secure.colluders}; or ask for a study with colluders = {self.colluders} in [federation]",
            )
        if (crowd := secure.honest_noises(secure.adversary)) < self.crowd:
            raise weaker(
                f"a sum may hide this device among {crowd} honest ones only, the policy wants {self.crowd}",
                f"--smallest-crowd {crowd}",
            )

    def check_keys(self, study: Agreement) -> None:
        """Nothing, or CH610 for a study with weaker keys than its cards offer, or than the owner allows.

        The cards are signed by the devices, so no server can make a study look as if it could not have better ones.
        """
        lacking = [device.id for device in study.file.devices if HYBRID not in device.offers]
        if study.hybrid:
            require_available()
            if lacking:
                raise TrustError(
                    "CH610",
                    f'the study has hybrid keys, and the card of "{lacking[0]}" does not offer them.',
                    fix="Refused: let the coordinator enrol again.",
                )
        elif not lacking and not study.trees:
            raise TrustError(
                "CH610",
                "all devices offer keys with ML-KEM-768, and the study has the older keys of the cards.",
                fix="Refused: ask the coordinator by phone who changed it.",
            )
        elif not self.card_keys:
            because = "it has too many devices for others" if study.trees else f'"{lacking[0]}" offers no others'
            others = "" if study.trees else "That site can install this choral and join again; or "
            raise TrustError(
                "CH610",
                f"the study has the older keys of the cards, since {because}.",
                why="A stolen vault opens past uploads with them, and so may a later quantum computer.",
                fix=f"Refused. {others}{'A' if study.trees else 'a'}llow it: --allow-card-keys.",
            )


def weaker(what: str, way_out: str) -> TrustError:
    """The refusal of a study that asks for more than the policy grants."""
    return TrustError(
        "CH603",
        f"the study is weaker than this site's policy: {what}.",
        fix=f"Refused. Only the owner can allow it: {way_out}.",
    )


def trusting(study: Agreement, code: Code | None, encoder: Encoder | None = None) -> Agreement:
    """The study with its encoder and the code that its model runs here, compared with its hash.

    CH603 for code that is not pinned.
    """
    study = replace(study, encoder=encoder)
    kind = study.job.model_kind
    if kind in BUILT_IN:
        return study
    if code is None or code.name != kind:
        raise TrustError(
            "CH603",
            f'the code of the model "{kind}" is not pinned by the approval.',
            fix=f"Approve the study again: choral device approve STUDY … --trust-model {kind}=FILE",
        )
    return replace(study, maker=code.maker())

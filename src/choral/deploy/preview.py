"""What a site's owner is shown before an approval, as numbers and names."""

from dataclasses import asdict, dataclass

from choral.core.plan import AnyLaw, UnitName


@dataclass(frozen=True, kw_only=True)
class Preview:
    """What an approval would mean, in numbers; nothing has left the site to find them."""

    study: str
    safety_number: str
    own_number: str  # this site's six digits for comparing the study
    hybrid: bool  # whether keys are agreed in the run and erased turn by turn
    device: str
    devices: tuple[str, ...]
    device_numbers: tuple[str, ...]
    columns: tuple[str, ...]
    label: str
    classes: tuple[str, ...]
    model: str
    code_path: str  # of a model that is somebody's own code, and its hash; else empty
    code_sha256: str
    parameters: int
    rows: int
    rounds: int
    planned_rounds: int
    upload_bytes: int
    download_bytes: int
    rule: str
    adjacency: str
    unit: UnitName
    adversary: str
    law: AnyLaw
    noise: float
    noise_on: str  # what the noise is added to
    delta: float
    epsilon_a_round: float
    epsilon_planned: float
    epsilon_sum_planned: float | None  # the same against a server that sees only sums, where that is proved
    sum_rule: str
    sum_adversary: str
    uploads: int  # the most that this approval allows: what is planned, and an allowance for what fails
    epsilon_uploads: float
    epsilon_spent_before: float
    terms_before: str  # what earlier charges cover together, by which rules and against whom; empty without any
    epsilon_limit: float
    epsilon_sum_limit: float | None  # the limit against a server that sees only sums, where the owner sets one
    epsilon_sum_spent_before: float
    smallest_sum: int
    colluders: int
    crowd: int
    lying: bool  # whether the sum withstands a server that lies, and not only a curious one
    probes: int = 0
    opened_turns: int = 0
    shape: tuple[int, ...] = ()  # of a row, where rows are arrays and have no columns
    encoder: str = ""  # the file that rows pass through, and its hash
    asks: str = ""  # what the study may ask of this table, in words; empty where it may ask nothing

    def to_dict(self) -> dict[str, object]:
        """The same for machines."""
        return asdict(self)

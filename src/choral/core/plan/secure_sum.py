"""The protection of a round's sum: who may drop out, who may collude, and when it may be opened."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

from choral.core.errors import PlanError
from choral.core.plan.checks import hold_plain_numbers, require_one_of, require_whole

PRIVACY_BITS = 40  # what a sparse graph must have
Adversary = Literal["curious", "lying"]
# Fields that choral 0.2 had, each with the only value that is left. Digests, studies and records go on naming them.
_OF_BEFORE: dict[str, object] = {"lanes": 1, "masks": "single", "mode": "choral"}


@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """The protection of a round's sum: who may drop out, who may collude, and when it may be opened.

    `smallest_sum` is u_min, `threshold` is s, `colluders` is c of docs/secure-sum.md. `adversary` is the server
    that the numbers must withstand: a lying one also needs s + u_min ≥ r + c + 1, and a complete graph.

    >>> SecureSum(cohort=10, smallest_sum=8, threshold=7, colluders=2).honest_noises("lying")
    4
    """

    cohort: int
    smallest_sum: int
    threshold: int
    colluders: int = 0
    adversary: Adversary = "lying"
    modulus_bits: Literal[16, 32, 64] = 32
    graph: Literal["complete", "harary"] = "complete"
    neighbours: int | None = None
    retired: tuple[tuple[str, str | int], ...] = ()  # of a record that choral 0.2 wrote: what only it can run

    def __post_init__(self) -> None:
        hold_plain_numbers(self)
        require_whole("cohort", self.cohort, least=2)
        require_whole("smallest_sum", self.smallest_sum, least=2, most=self.cohort)
        require_whole("colluders", self.colluders, least=0, most=self.cohort - 1)
        require_whole("threshold", self.threshold, least=1, most=self.cohort)
        require_one_of("adversary", self.adversary, ("curious", "lying"))
        require_one_of("graph", self.graph, ("complete", "harary"))
        self._require_room()
        self._require_graph()
        self._require_safe()

    @classmethod
    def for_cohort(cls, cohort: int, *, colluders: int | None = None, **other: Any) -> Self:  # noqa: ANN401 - other fields
        """The default for a cohort: a quarter may drop out and a fifth collude, with a lying server.

        From four devices on, one colluder at least is counted; with more of them fewer devices may drop out.

        >>> SecureSum.for_cohort(100)
        SecureSum(cohort=100, smallest_sum=75, threshold=74, colluders=20, adversary='lying', ...)
        """
        require_whole("cohort", cohort, least=2)
        usual = max(cohort // 5, int(cohort >= 4))
        counted = usual if colluders is None else require_whole("colluders", colluders, least=0, most=cohort - 1)
        # A quarter may drop out, as far as the safe bound allows: 2·u_min − 1 ≥ r + c + 1 at s = u_min − 1.
        smallest = min(cohort, max(-(-3 * cohort // 4), -(-(cohort + counted + 2) // 2)))
        return cls(cohort=cohort, smallest_sum=smallest, threshold=smallest - 1, colluders=counted, **other)

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Self:
        """The secure sum that these fields describe, which may be of a record of choral 0.2.

        >>> SecureSum.read(SecureSum.for_cohort(4).described) == SecureSum.for_cohort(4)
        True
        """
        return cls(**meant_by(fields))

    @property
    def described(self) -> dict[str, object]:
        """All fields as digests, studies and records name them, in the order of choral 0.2."""
        own, before = asdict(self), _OF_BEFORE | dict(self.retired)
        graph = {name: own.pop(name) for name in ("graph", "neighbours")}
        del own["retired"]
        return own | {name: before[name] for name in ("lanes", "masks")} | graph | {"mode": before["mode"]}

    def require_runnable(self) -> None:
        """Raise CH204 for a form that only choral 0.2 and before can run."""
        for name, value in self.retired:
            raise PlanError(
                "CH204", f"a secure sum with {name} = {value!r}.", fix="choral 0.2 is the last version that runs it."
            )

    @property
    def value_bits(self) -> int:
        """q: the bits that one device's value may have, so that no sum of a cohort wraps: b ≥ q + ⌈log2 r⌉ + 1."""
        return self.modulus_bits - (self.cohort - 1).bit_length() - 1

    @property
    def lying(self) -> bool:
        """Tell whether the numbers withstand a lying server, and not only a curious one."""
        return self.adversary == "lying"

    @property
    def sparse(self) -> bool:
        """Tell whether each device shares secrets with some others only."""
        return self.graph == "harary"

    @property
    def failure(self) -> float:
        """The chance per turn that an update is exposed: zero on a complete graph, at most 2^-40 on a sparse one."""
        return 2.0**-PRIVACY_BITS if self.sparse else 0.0

    def honest_noises(self, adversary: Adversary) -> int:
        """r_eff: how many honest devices' noises are certainly in any sum that this adversary can open."""
        if adversary == "curious":
            return self.smallest_sum - self.colluders
        if not self.lying:
            raise PlanError(
                "CH205",
                "this secure sum claims nothing against a lying server.",
                fix='Use a complete graph and adversary = "lying".',
            )
        return self.threshold + self.smallest_sum - self.cohort - self.colluders + 1

    def _require_room(self) -> None:
        if self.modulus_bits not in (16, 32, 64):
            raise PlanError("CH204", f"modulus_bits = {self.modulus_bits!r}.", fix="Use 16, 32 or 64 bits.")
        if self.value_bits < 3:
            raise PlanError(
                "CH204",
                f"a sum of {self.cohort:,} devices leaves {self.value_bits} bits for a value.",
                fix="Use a larger modulus, or a smaller cohort.",
            )

    def _require_graph(self) -> None:
        if self.sparse != (self.neighbours is not None):
            raise PlanError(
                "CH204", f"graph = {self.graph!r} with neighbours = {self.neighbours!r}.",
                fix='Give neighbours with graph = "harary", and only there.',
            )  # fmt: skip
        if self.neighbours is not None and (
            require_whole("neighbours", self.neighbours, least=2, most=self.cohort - 1) % 2
        ):
            raise PlanError("CH200", f"neighbours = {self.neighbours}.", fix="Must be even.")

    def _require_safe(self) -> None:
        """The bounds of docs/secure-sum.md; one below any of them, somebody's update can be opened alone."""
        if self.sparse:
            if self.lying:
                raise PlanError(
                    "CH205",
                    "a sparse graph is claimed against a curious server only: a lying one can choose it.",
                    fix='Use graph = "complete", or adversary = "curious".',
                )
            within = self.threshold <= (self.neighbours or 0)
        else:
            within = self.colluders < self.threshold <= self.smallest_sum - 1
        if not within:
            raise PlanError(
                "CH205",
                f"threshold = {self.threshold}, colluders = {self.colluders}, smallest_sum = {self.smallest_sum}.",
                fix="The threshold must be above colluders and below smallest_sum; at most neighbours, if sparse.",
            )
        least = self.cohort + self.colluders + 1
        if self.lying and self.threshold + self.smallest_sum < least:
            raise PlanError(
                "CH205",
                f"threshold + smallest_sum = {self.threshold + self.smallest_sum}, the safe bound is {least}.",
                why="Below it a lying server can open one device's update.",
                fix=f"Use SecureSum.for_cohort({self.cohort}), a larger threshold, or fewer colluders.",
            )


def meant_by(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a secure sum of any version for this one: what only choral 0.2 and before can run is `retired`.

    >>> meant_by({"cohort": 4, "lanes": 3, "masks": "single"})
    {'cohort': 4, 'retired': (('lanes', 3),)}
    """
    retired = tuple((name, fields[name]) for name, left in _OF_BEFORE.items() if fields.get(name, left) != left)
    return {name: value for name, value in fields.items() if name not in _OF_BEFORE} | {"retired": retired}

"""Personal models of a run in one process: for every site the shared model, the site alone and its personal model.

These figures are computed from rows without noise. They are shown to whoever simulates and written into no run folder.
"""

import statistics
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from choral.learning.personal import KAPPA, Rows, Standing, chosen, in_words, joined, side_by_side
from choral.run.study import Study
from choral.tables.records import Records


@dataclass(frozen=True, kw_only=True)
class Site:
    """One site: its κ, why it has it, and how the three models stand on its test rows."""

    name: str
    rows: int
    kappa: float
    because: str
    standings: dict[str, Standing]


@dataclass(frozen=True, kw_only=True)
class AllSites:
    """Every site side by side; `proposed` is the κ that a site has unless its own rows insist on another."""

    proposed: float
    sites: tuple[Site, ...]

    def mean(self, model: str) -> dict[str, float]:
        """The mean over sites of each figure of "shared", "alone" or "personal"."""
        figures = [site.standings[model].to_dict() for site in self.sites]
        return {name: statistics.fmean(one[name] for one in figures) for name in figures[0]}

    def gain_over(self, model: str) -> float:
        """The share of sites whose personal model has a smaller loss than this one."""
        return statistics.fmean(site.standings["personal"].loss < site.standings[model].loss for site in self.sites)

    @property
    def verdict(self) -> str:
        """It is what the figures say, in a sentence that promises nothing to a single site."""
        personal = self.mean("personal")["loss"]
        if personal >= self.mean("alone")["loss"]:
            return "By mean loss a site alone is as good: personal models do not pay here."
        share = f"in {self.gain_over('alone'):.0%} of sites it is better than alone"
        if personal >= self.mean("shared")["loss"]:
            return f"By mean loss the shared model is as good as a personal one; {share}."
        return f"By mean loss a personal model is better than both; {share}."

    def to_dict(self) -> dict[str, object]:
        """The same for machines; κ is null for a site that is best alone, where it is infinite."""
        return {
            "kappa": self.proposed,
            "mean": {name: self.mean(name) for name in self.sites[0].standings},
            "gain_over_alone": self.gain_over("alone"),
            "gain_over_shared": self.gain_over("shared"),
            "verdict": self.verdict,
            "sites": [
                {
                    "name": site.name,
                    "rows": site.rows,
                    "kappa": site.kappa if np.isfinite(site.kappa) else None,
                    "words": in_words(site.kappa, self.proposed),
                    "because": site.because,
                    **{name: standing.to_dict() for name, standing in site.standings.items()},
                }
                for site in self.sites
            ],
        }


def all_sites(study: Study, shared: NDArray[np.float32], kappa: float = KAPPA) -> AllSites:
    """Every site's personal model, chosen on its validation rows, fitted on all rows but its test rows, judged there.

    The site alone is fitted on the same rows. Sites without test rows have no figures and are left out.
    """
    split, target = study.split, study.data.target
    sites = []
    for number, name in enumerate(split.train.names):
        train, validation, test = (_rows_of(part, number) for part in (split.train, split.validation, split.test))
        if not len(test[1]):
            continue
        kept, because = chosen(study.model, shared, train, validation, kappa=kappa)
        whole, unit = joined(train, validation), 1.0 if target is None else target.unit
        standings = side_by_side(study.model, shared, whole, test, kept, unit=unit)
        sites.append(Site(name=name, rows=len(whole[1]), kappa=kept, because=because, standings=standings))
    return AllSites(proposed=kappa, sites=tuple(sites))


def _rows_of(records: Records, device: int) -> Rows:
    return records.features_of(device), records.labels_of(device)

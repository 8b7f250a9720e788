"""A trained model in a notebook: what it claims as a page, its rounds as a picture and as a data frame."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal, Self

from choral import config
from choral.core.errors import ConfigError
from choral.report import charts, page, report_page, words
from choral.report.markup import Markup, element, table, together
from choral.run.breakdown import SITE, GroupFigures, by_column, by_site, by_table
from choral.run.folder import write_whole
from choral.run.result import Result
from choral.tables.reading import DataSource, frame_of, from_frame
from choral.tables.sources import Reading, read_one


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A chart as SVG: notebooks show it, and `save` writes it as a file."""

    svg: str

    def save(self, path: str | Path) -> Path:
        """The picture as an SVG file."""
        write_whole(Path(path), self.svg.encode())
        return Path(path)

    def _repr_svg_(self) -> str:
        return self.svg


@dataclass(frozen=True, kw_only=True)
class Breakdown(Sequence[GroupFigures]):
    """The figures of each site or group; they are computed without noise, from rows that one process holds."""

    of: str
    groups: tuple[GroupFigures, ...]

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - one group, or several for a slice
        return self.groups[place]

    def __len__(self) -> int:
        return len(self.groups)

    @property
    def rows(self) -> list[dict[str, object]]:
        """A row for each group: its name, its test rows and its figures."""
        return [{self.of: one.name, "rows": one.rows, **one.figures} for one in self.groups]

    def to_frame(self) -> Any:  # noqa: ANN401 - pandas is optional
        """The same as a data frame of pandas."""
        return frame_of(self.rows)

    def _repr_html_(self) -> str:
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        cells = [[_shown(row.get(name, "")) for name in names] for row in self.rows]
        return str(table(names, cells))


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


class Trained(Result):
    """A trained model that predicts, says what it cost, and writes the page that a privacy officer signs."""

    @classmethod
    def of(cls, result: Result) -> Self:
        """The result of a run, for people."""
        return cls(**{field.name: getattr(result, field.name) for field in fields(result)})

    def report(self, path: str | Path = "report.html") -> Path:
        """The report of the run as one HTML file, written to this path."""
        path = Path(path)
        write_whole(path, page(self.record).encode())
        return path

    def plot(self, path: str | Path | None = None) -> Picture:
        """How good the model was after each round, with the lines that it is compared with; also as a file."""
        chart = report_page.merit_curve(self.record)
        if chart is None:
            raise ConfigError("CH111", "no round was evaluated.", fix="Keep test above 0 in [data].")
        picture = Picture(svg=charts.alone(chart))
        if path is not None:
            picture.save(path)
        return picture

    def to_frame(self, of: Literal["rounds", "devices"] = "rounds") -> Any:  # noqa: ANN401 - pandas is optional
        """A data frame of pandas: each round with its figures, or each device with what it has spent."""
        return frame_of(list(self._rounds() if of == "rounds" else self._devices()))

    def _rounds(self) -> Iterator[dict[str, object]]:
        for line in self.history:
            yield {"round": line.round, "seconds": line.seconds, "devices": len(line.included), **line.test}

    def _devices(self) -> Iterator[dict[str, object]]:
        privacy = self.privacy
        for one in privacy.devices or ():
            yield {
                "device": one.name, "rounds": one.rounds, "epsilon": one.epsilon, "limit": one.limit, "full": one.full,
                "delta": privacy.delta, "rule": privacy.against_everyone.rule, "adjacency": privacy.adjacency,
                "against": words.limited_against(self.record.about),
            }  # fmt: skip

    def by_site(self) -> Breakdown:
        """The figures of each site on its own test rows; of simulations and rehearsals only, and written nowhere."""
        return Breakdown(of=SITE, groups=tuple(by_site(self)))

    def by_group(self, column: str, rows: DataSource = None) -> Breakdown:
        """The figures of each level of a column on the run's test rows, or on rows that hold it and the label."""
        if rows is None:
            return Breakdown(of=column, groups=tuple(by_column(self, column)))
        job = config.parse(self.record.about.job)
        table = (
            read_one(rows, Reading(written=job.data.written))
            if isinstance(rows, str | Path)
            else from_frame(rows, job.data.written)
        )
        return Breakdown(of=column, groups=tuple(by_table(self, table, column, job.data.label)))

    def _repr_html_(self) -> str:
        kind, meaning = words.label(self.record)
        chart = report_page.merit_curve(self.record)
        lines = [element("p", element("strong", kind), f" {meaning}")]
        if self.test:
            lines.append(element("p", words.measured(self.record.finished)))
        lines.append(report_page.claims_table(self.record))
        if chart is not None:
            lines.append(element("div", Markup(charts.alone(chart)), style="max-width: 30rem"))
        return str(together(*lines))

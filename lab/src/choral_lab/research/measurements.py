"""What was measured before, one file an experiment: a figure that was interrupted goes on where it stopped."""

import hashlib
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

from choral import __version__
from choral.core.errors import StorageError
from choral.core.plan import require_whole
from choral.run.folder import write_whole
from choral_lab.research.experiment import CORES, Curve, Experiment, Part, train_together


class Measurements:
    """The curves of experiments over some repeats, each measured once and kept in a folder."""

    def __init__(
        self,
        folder: str | Path,
        repeats: int,
        *,
        tell: Callable[[str], object] = lambda _: None,
        moved: Callable[[str], object] = lambda _: None,
    ) -> None:
        """`tell` is called for each measurement, `moved` while runs are being trained."""
        self.folder, self.repeats = Path(folder), require_whole("repeats", repeats)
        self.tell, self.moved = tell, moved
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                "CH801", f"can't be made: {error.strerror}.", where=str(folder), fix="Give another --out."
            ) from None

    def together(self, experiments: Sequence[Experiment], part: Part) -> None:
        """Train what will be asked for, side by side; each run is measured and kept when it is there."""
        self.ahead([(experiments, part)])

    def ahead(self, wanted: Sequence[tuple[Sequence[Experiment], Part]]) -> None:
        """The same for experiments that will be asked for by different parts of the rows."""
        repeats = range(self.repeats)
        self.side_by_side([(one, repeat, part) for repeat in repeats for some, part in wanted for one in some])

    def side_by_side(self, runs: Sequence[tuple[Experiment, int, Part]]) -> None:
        """The same for experiments that differ from repeat to repeat."""
        missing: dict[tuple[Experiment, int], list[Part]] = {}
        for one, repeat, part in dict.fromkeys(runs):
            if str(repeat) not in self._file(one, part)[1]:
                missing.setdefault((one, repeat), []).append(part)
        for one, repeat in train_together(list(missing), self.moved):
            for part in missing[one, repeat]:
                self.curve(one, repeat, part)

    def curves(self, experiment: Experiment) -> list[Curve]:
        """The curve of each repeat on its test rows: for what is not chosen among others."""
        self.together([experiment], "test")
        return [self.curve(experiment, repeat, "test") for repeat in range(self.repeats)]

    def varied(
        self, experiment: Experiment, setting: str, symbol: str, values: Sequence[Any]
    ) -> dict[str, list[Curve]]:
        """The curves for several values of one setting, named as in "σ = 0.1"."""
        several = {f"{symbol} = {one:g}": replace(experiment, **{setting: one}) for one in values}
        self.together([*several.values()], "test")
        return {name: self.curves(one) for name, one in several.items()}

    def curve(self, experiment: Experiment, repeat: int, part: Part) -> Curve:
        """The curve of one repeat on one part of the rows."""
        found: Curve = self._kept(experiment, part, repeat, lambda: experiment.curve(repeat, part))
        return found

    def alone(self, experiment: Experiment, repeat: int) -> float:
        """The mean test accuracy of every device by itself."""
        found: float = self._kept(experiment, "alone", repeat, lambda: experiment.alone(repeat))
        return found

    def each_alone(self, experiments: Sequence[Experiment]) -> list[float]:
        """The same for the experiment of each repeat, as many at a time as there are cores."""
        pool = ThreadPoolExecutor(CORES)
        try:
            coming = {
                repeat: pool.submit(one.alone, repeat)
                for repeat, one in enumerate(experiments)
                if str(repeat) not in self._file(one, "alone")[1]
            }
            return [
                self._kept(one, "alone", repeat, coming[repeat].result) if repeat in coming else self.alone(one, repeat)
                for repeat, one in enumerate(experiments)
            ]
        finally:
            pool.shutdown(cancel_futures=True)

    def _kept(self, experiment: Experiment, what: str, repeat: int, measure: Callable[[], Any]) -> Any:  # noqa: ANN401 - JSON
        """What was measured before, or is measured now."""
        path, kept = self._file(experiment, what)
        if str(repeat) not in kept:
            self.tell(experiment.named(repeat))
            kept[str(repeat)] = measure()
            write_whole(path, json.dumps(kept, indent=1).encode())
        return kept[str(repeat)]

    def _file(self, experiment: Experiment, what: str) -> tuple[Path, dict[str, object]]:
        """Where an experiment lies, and what was measured of it."""
        described = {**experiment.described(), "measured": what, "version": __version__}
        text = json.dumps(described, sort_keys=True)
        path = self.folder / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        try:
            return path, json.loads(path.read_text()) if path.exists() else {"experiment": described}
        except ValueError:
            raise StorageError(
                "CH802", "is not what was written.", where=str(path), fix="Delete it: it is measured again."
            ) from None


class Counting(Measurements):
    """Measures nothing and counts what a figure would have to measure, to say how long it will take.

    What is chosen depends on what is measured, how much is measured does not.
    """

    def __init__(self, folder: str | Path, repeats: int) -> None:
        super().__init__(folder, repeats)
        self.missing: set[tuple[Path, int]] = set()

    def side_by_side(self, runs: Sequence[tuple[Experiment, int, Part]]) -> None:
        """Nothing is trained."""

    def each_alone(self, experiments: Sequence[Experiment]) -> list[float]:
        """Nothing here either."""
        return [self.alone(one, repeat) for repeat, one in enumerate(experiments)]

    def _kept(self, experiment: Experiment, what: str, repeat: int, measure: Callable[[], Any]) -> Any:  # noqa: ANN401, ARG002 - as above
        path, kept = self._file(experiment, what)
        if str(repeat) not in kept:
            self.missing.add((path, repeat))
        if what == "alone":
            return 0.5
        names = (f"{what}_accuracy", f"{what}_loss", *experiment.also)
        return {"round": list(range(1, experiment.looks + 1)), **{name: [0.5] * experiment.looks for name in names}}

"""Federated training as estimators of scikit-learn: cross-validation, displays, pipelines and pickles work as usual.

Each `fit` is one simulation, and ε is what that one fit costs a record. Whoever tries ten settings on the same rows has
trained ten times; no ε of choral covers what is learned from all of them together.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from choral.core.errors import ConfigError, InputError
from choral.core.plan import Against
from choral.front import simulate
from choral.tables.reading import Table
from choral.tables.sources import FEWEST_ROWS

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, column_or_1d, validate_data
except ImportError:
    raise ConfigError("CH106", "estimators need scikit-learn.", fix="pip install 'choral[sklearn]'") from None

USUAL_ROWS, USUAL_DEVICES = 100, 10  # of a device; devices
Bounds = Sequence[float] | Sequence[Sequence[float]]


class _Federated(BaseEstimator):  # type: ignore[misc]
    """What both estimators have in common: rows dealt over devices, one simulation per fit, and its result."""

    epsilon: float
    delta: float
    devices: int | None
    bounds: Bounds | None
    model: str | None
    hidden: Sequence[int] | None
    against: Against
    settings: Mapping[str, Any] | None
    random_state: Any

    def _fit(self, features: NDArray[np.float64], labels: Sequence[object], sites: object, **more: Any) -> None:  # noqa: ANN401
        """Train; the result is `result_`, with its claims in `result_.privacy`."""
        if len(features) < 2 * FEWEST_ROWS:
            least = f"{2 * FEWEST_ROWS}, two devices with {FEWEST_ROWS} each"
            raise ValueError(f"There are n_samples={len(features)} rows, and at least {least}, are needed.")
        columns = self._columns(features)
        label, site = (_unused(name, columns) for name in ("label", "site"))
        columns[label] = list(labels)
        if sites is not None:
            columns[site] = column_or_1d(np.asarray(sites, dtype=object)).tolist()
            if len(columns[site]) != len(features):
                raise ValueError(f"{len(features)} rows and {len(columns[site])} sites: name the site of each row.")
        dealt = {"device_column": site} if sites is not None else {"devices": self._dealt(len(features))}
        settings = {
            "epsilon": self.epsilon, "delta": self.delta, "model": self.model, "hidden": self.hidden,
            "against": self.against, "columns": self._declared(columns, features.shape[1]), "label": label,
            "validation": 0.0, "test": 0.0, "seed": self._seed(), **dealt, **more, **(self.settings or {}),
        }  # fmt: skip
        try:
            self.result_ = simulate(Table(source="X", columns=columns), **settings)
        except InputError as error:
            raise ValueError(str(error)) from error

    def _columns(self, features: NDArray[np.float64]) -> dict[str, list[object]]:
        """The features as the columns of a table, by their names if they have any."""
        names = getattr(self, "feature_names_in_", [f"x{number}" for number in range(features.shape[1])])
        return {str(name): features[:, number].tolist() for number, name in enumerate(names)}

    def _declared(self, columns: Mapping[str, object], count: int) -> dict[str, dict[str, list[float]]] | None:
        """The declared range of each feature; None leaves ranges to the rows, as the result then says."""
        if self.bounds is None:
            return None
        ranges = np.asarray(self.bounds, dtype=np.float64)
        if ranges.shape == (2,):
            ranges = np.tile(ranges, (count, 1))
        if ranges.shape != (count, 2):
            raise ValueError(
                f"bounds have shape {ranges.shape}: give (low, high), or a pair for each of {count} features."
            )
        return {name: {"bounds": pair} for name, pair in zip(columns, ranges.tolist(), strict=False)}

    def _dealt(self, rows: int) -> int:
        """How many devices share the rows: as is said, else as many as have 100 rows each, from 2 to 10."""
        return self.devices or min(USUAL_DEVICES, max(2, rows // USUAL_ROWS))

    def _seed(self) -> int | None:
        """A seed, if the fit is to be repeated: its noise can then be predicted."""
        if self.random_state is None:
            return None
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _rows(self, X: object) -> Table:
        check_is_fitted(self)
        return Table(source="X", columns=self._columns(validate_data(self, X, reset=False, dtype=np.float64)))

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's own
        tags = super().__sklearn_tags__()
        tags.non_deterministic = self.random_state is None
        return tags


class Classifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """A classifier that is trained over devices within a budget: `Classifier(epsilon=2, devices=8).fit(X, y)`.

    `bounds` are the declared ranges of the features, one pair for all or one for each; without them they are taken from
    the rows, which no ε covers. `settings` are any others of a choral.toml, by name. `fit` takes the site of each row
    as `sites`; else the rows are dealt over `devices`.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(400, 2))
    >>> made = Classifier(epsilon=4, devices=4, bounds=(-1, 1), random_state=0).fit(X, np.where(X[:, 0] > 0, "b", "a"))
    >>> made.classes_.tolist(), made.score(X, np.where(X[:, 0] > 0, "b", "a")) > 0.8
    (['a', 'b'], True)
    """

    def __init__(
        self,
        *,
        epsilon: float = 2.0,
        delta: float = 1e-5,
        devices: int | None = None,
        bounds: Bounds | None = None,
        model: str | None = None,
        hidden: Sequence[int] | None = None,
        against: Against = "everyone",
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,  # noqa: ANN401 - a number, a generator or None
    ) -> None:
        self.epsilon, self.delta, self.devices, self.bounds = epsilon, delta, devices, bounds
        self.model, self.hidden, self.against = model, hidden, against
        self.settings, self.random_state = settings, random_state

    def fit(self, X: object, y: object, sites: object = None) -> Self:
        """Train over devices; the rows of one of the `sites` are on one device."""
        features, labels = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(labels)
        self.classes_, codes = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("There is only one class in y: nothing can be learned from it.")
        self._fit(features, codes.tolist(), sites, classes=[str(code) for code in range(len(self.classes_))])
        return self

    def predict_proba(self, X: object) -> NDArray[np.float64]:
        """The probability of each class for each row, in the order of `classes_`."""
        rows = self._rows(X)
        return self.result_.predict_proba(rows)

    def predict(self, X: object) -> NDArray[Any]:
        """The likeliest class of each row."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])


class Regressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """The same for numbers; `label_bounds` is the declared range of y and must be given.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).uniform(-1, 1, size=(600, 2))
    >>> made = Regressor(epsilon=4, devices=3, bounds=(-1, 1), label_bounds=(-3, 3), random_state=0).fit(X, 2 * X[:, 0])
    >>> made.score(X, 2 * X[:, 0]) > 0.7
    True
    """

    def __init__(
        self,
        *,
        epsilon: float = 2.0,
        delta: float = 1e-5,
        devices: int | None = None,
        bounds: Bounds | None = None,
        label_bounds: Sequence[float] | None = None,
        model: str | None = None,
        hidden: Sequence[int] | None = None,
        against: Against = "everyone",
        settings: Mapping[str, Any] | None = None,
        random_state: Any = None,  # noqa: ANN401 - a number, a generator or None
    ) -> None:
        self.epsilon, self.delta, self.devices, self.bounds = epsilon, delta, devices, bounds
        self.label_bounds, self.model, self.hidden, self.against = label_bounds, model, hidden, against
        self.settings, self.random_state = settings, random_state

    def fit(self, X: object, y: object, sites: object = None) -> Self:
        """Train over devices; a y outside `label_bounds` is moved to the nearer one."""
        features, labels = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        if self.label_bounds is None:
            raise ValueError("label_bounds is not given: declare the range of y, since rows would reveal theirs.")
        self._fit(features, labels.tolist(), sites, label_bounds=[float(end) for end in self.label_bounds])
        return self

    def predict(self, X: object) -> NDArray[np.float64]:
        """The number of each row, in the unit of y."""
        rows = self._rows(X)
        return np.asarray(self.result_.predict(rows), dtype=np.float64)


def _unused(name: str, columns: Mapping[str, object]) -> str:
    """The name, with a stroke for each time that a feature has it already."""
    while name in columns:
        name += "'"
    return name

"""A small study that trains in a second, for tests of runs."""

import numpy as np

from choral.config import job_of
from choral.run.planning import settle


def rows(count=240, features=4, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.uniform(-1, 1, size=(count, features)).astype(np.float32)
    return features, (features[:, 0] + 0.3 * rng.normal(size=count) > 0).astype(int)


# Without a colluder in mind, so that one device of a cohort of four may drop out.
SETTINGS = {
    "colluders": 0, "devices": 6, "cohort": 4, "rounds": 3, "local_steps": 2, "batch": 8, "step_size": 0.5, "clip": 1.0,
    "epsilon": 4.0, "delta": 1e-4, "seed": 5,
}  # fmt: skip


def study(data=None, **changes):
    settings = {**SETTINGS, **changes}
    return settle(job_of(**settings), rows() if data is None else data)

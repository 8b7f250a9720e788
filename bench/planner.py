"""The planner's settings beside the best of a grid: `python -m bench.planner [--quick] [--json] [--data DIR]`.

Real tables over five sites, even and with shares of 50/28/14/6/2 %, δ = 1e-5 against everyone, one record replaced;
`--data DIR` adds GUSTO-I, School and Heart over their own sites. Accuracy on held-out rows, or R² of a number, mean
over seeds. `planner` is the proposal; `best` is the setting of a grid of 240 (slope, total time, rounds, server step)
that is best on the validation rows, mean over seeds, judged on the same test rows; both by the engine's own local work
and with the noise that `calibrated` gives. `alone` and `without_privacy` are the baselines of a run, trained to
convergence. `verdict` is the sentence's kind that is said before a run, `happened` what the figures say.
"""

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.real_tables import IN_FOLDER, PACKAGED, RealTable
from choral import config
from choral.backends.once import OnceEngine
from choral.federation import balanced_cohorts
from choral.learning.evaluate import evaluate
from choral.plan import Plan
from choral.privacy.calibrate import calibrated
from choral.privacy.mechanisms.noise_once import CONVEX, MARGIN
from choral.run.baselines import baselines
from choral.run.planning import _budget  # the budget that the proposal was made for
from choral.run.study import Study, codec_of, settle
from choral.secagg.codec import mean
from choral.server_step import MEAN, Averaged

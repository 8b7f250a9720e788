"""How many of a test's random cases `make test` runs; `make test-long` runs the others."""

import pytest


def cases(number, *, quick):
    """The numbers of all cases, those from `quick` on marked long."""
    return [*range(quick), *(pytest.param(one, marks=pytest.mark.long) for one in range(quick, number))]

"""What an approval holds fast: where the passes over a table begin, and that the table is the approved one."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from choral.core.errors import TableError
from choral.deploy.home import check_table, passes_began

CHARGES = [SimpleNamespace(plan=plan) for plan in ("old", "run", "run", "other", "run")]


def test_a_table_that_is_known_goes_on_in_its_pass_whatever_was_charged_since():
    assert passes_began("run", CHARGES, 1) == 1
    assert passes_began("run", CHARGES, 0) == 0


def test_another_table_begins_a_new_pass_behind_all_charges_of_its_own_run():
    assert passes_began("run", CHARGES, None) == 3
    assert passes_began("none", CHARGES, None) == 0


def test_another_table_is_refused_by_the_name_of_its_file_and_shows_neither_digest_nor_folder():
    with pytest.raises(TableError, match=r"CH313 rows\.csv the table is not the one that was approved") as caught:
        check_table("ab12", "ab13", data=Path("/secret/rows.csv"))
    assert not [hidden for hidden in ("ab12", "ab13", "secret") if hidden in str(caught.value)]

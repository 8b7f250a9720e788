"""What a device knows of a roster by its root: its own place, and whoever it is shown."""

from dataclasses import replace

import pytest

from choral.core.errors import TrustError
from choral.core.keys import Identity
from choral.trees.merkle import RosterPart, cohort_tree, require_enrolled, require_in_cohort, roster_tree
from tests.protocol.world import enrolled

IDENTITIES, ROSTER = enrolled(10)
TREE = roster_tree(ROSTER)


def part(**changes):
    given = {"root": TREE.root, "count": 10, "number": 3, "own": ROSTER.bundles[3], "path": TREE.path(3)}
    return RosterPart(**(given | changes))


def code_of(call):
    with pytest.raises(TrustError) as refusal:
        call()
    return refusal.value.code


def test_a_device_finds_itself_by_its_own_path_and_no_other():
    assert part().number_of(IDENTITIES[3]) == 3 and len(part()) == 10 and part().digest == TREE.root
    assert code_of(lambda: part().number_of(IDENTITIES[4])) == "CH601"
    assert code_of(lambda: part().number_of(Identity.fresh(IDENTITIES[3].id))) == "CH601"
    for changes in ({"number": 4}, {"count": 11}, {"root": bytes(32)}, {"own": ROSTER.bundles[4]}, {"path": b""}):
        assert code_of(lambda changes=changes: part(**changes)) == "CH615"


def test_whoever_is_shown_must_be_enrolled_under_that_number_and_have_signed_its_card():
    known, peer = part(), ROSTER.bundles[7]
    known.check(7, peer, TREE.path(7))
    assert code_of(lambda: known.check(6, peer, TREE.path(7))) == "CH615"
    assert code_of(lambda: known.check(7, Identity.fresh(peer.id).bundle, TREE.path(7))) == "CH615"
    forged = replace(peer, signature=bytes(64))
    other = roster_tree([*ROSTER.bundles[:7], forged, *ROSTER.bundles[8:]])
    assert code_of(lambda: require_enrolled(other.root, 10, 7, forged, other.path(7))) == "CH606"


def test_a_cohort_binds_who_stands_where_with_which_nonce():
    nonces = {number: bytes([number] * 16) for number in (1, 4, 6)}
    tree = cohort_tree(nonces)
    require_in_cohort(tree.root, 3, 1, 4, nonces[4], tree.path(1))
    for place, number, nonce in ((0, 4, nonces[4]), (1, 5, nonces[4]), (1, 4, nonces[6])):
        call = lambda place=place, number=number, nonce=nonce: require_in_cohort(  # noqa: E731
            tree.root, 3, place, number, nonce, tree.path(1)
        )
        assert code_of(call) == "CH615"

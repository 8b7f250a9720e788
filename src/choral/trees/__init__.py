"""Lists as trees, for studies with very many devices; the seam is `choral.core.terms.Lists`."""

from choral.core.keys import Roster
from choral.core.terms import Lists


def lists_of(roster: Roster) -> Lists:
    """The lists of a study whose roster is a tree; only such a study loads the rest of this room."""
    from choral.trees.lists import TreeLists
    from choral.trees.merkle import roster_tree

    return TreeLists(roster_tree(roster))

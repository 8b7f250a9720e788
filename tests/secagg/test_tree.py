"""Merkle trees: every entry has a path to the root, and nothing else has one."""

import json
from pathlib import Path

import pytest

from choral.core.errors import TrustError
from choral.core.keys import digest
from choral.trees.merkle import HASH_SIZE, Tree, path_length, root_of
from tests.vectors import first_tree, second_tree
from tests.vectors.answers import expected, outcome

FOLDER = Path(__file__).parents[1] / "vectors"
VECTORS = [
    pytest.param(vector, id=f"{vector['kind']}, {vector['name']}")
    for vector in json.loads((FOLDER / "tree.json").read_text(encoding="utf-8"))
]


def entries(count):
    return [f"entry {number}".encode() for number in range(count)]


def code_of(**given):
    with pytest.raises(TrustError) as refusal:
        root_of("kind", **given)
    return refusal.value.code


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 6, 7, 8, 9, 21, 64, 65])
def test_every_entry_of_a_list_of_any_length_has_a_path_to_the_root(count):
    tree, listed = Tree("kind", entries(count)), entries(count)
    for index, entry in enumerate(listed):
        path = tree.path(index)
        assert len(path) == HASH_SIZE * path_length(index, count)
        assert root_of("kind", entry, index=index, count=count, path=path) == tree.root


def test_a_path_is_as_long_as_the_logarithm_of_the_list():
    assert max(path_length(index, 10**6) for index in (0, 1, 524_287, 524_288, 999_998, 999_999)) == 20


def test_another_entry_index_or_length_leads_to_another_root_or_to_none():
    tree = Tree("kind", entries(6))
    path = tree.path(2)
    assert root_of("kind", b"another", index=2, count=6, path=path) != tree.root
    assert root_of("kind", b"entry 2", index=3, count=6, path=path) != tree.root
    assert root_of("kind", b"entry 2", index=2, count=5, path=path) != tree.root  # as long, and bound to the length
    assert code_of(entry=b"entry 2", index=6, count=6, path=path) == "CH615"
    assert code_of(entry=b"entry 2", index=-1, count=6, path=path) == "CH615"
    assert code_of(entry=b"entry 4", index=4, count=6, path=path) == "CH615"  # the path to 4 is shorter


def test_a_path_that_is_too_long_too_short_or_in_another_order_leads_nowhere():
    tree = Tree("kind", entries(8))
    path = tree.path(3)
    assert code_of(entry=b"entry 3", index=3, count=8, path=path + bytes(32)) == "CH615"
    assert code_of(entry=b"entry 3", index=3, count=8, path=path[:-32]) == "CH615"
    assert code_of(entry=b"entry 3", index=3, count=8, path=path[:-1]) == "CH615"
    swapped = path[32:64] + path[:32] + path[64:]
    assert root_of("kind", b"entry 3", index=3, count=8, path=swapped) != tree.root


def test_a_node_is_no_entry_and_an_entry_is_no_node():
    tree = Tree("kind", entries(4))
    leaves = [digest("kind leaf", index.to_bytes(8, "little"), entry) for index, entry in enumerate(entries(4))]
    inner = leaves[0] + leaves[1]
    # The list of the two inner nodes as entries would have the same root if leaves were hashed as nodes are.
    assert Tree("kind", [inner, leaves[2] + leaves[3]]).root != tree.root
    assert root_of("kind", inner, index=0, count=2, path=tree.path(0)[32:]) != tree.root


def test_a_list_whose_last_entry_is_there_twice_has_another_root():
    for count in (1, 3, 5, 7):
        doubled = [*entries(count), entries(count)[-1]]
        assert Tree("kind", doubled).root != Tree("kind", entries(count)).root


def test_trees_of_two_kinds_share_no_root_and_a_list_without_entries_has_none():
    assert Tree("kind", entries(3)).root != Tree("other", entries(3)).root
    with pytest.raises(TrustError) as refusal:
        Tree("kind", [])
    assert refusal.value.code == "CH615"


@pytest.mark.parametrize("vector", VECTORS)
def test_choral_answers_as_the_vector_says(vector):
    assert outcome(first_tree, vector) == expected(vector)


@pytest.mark.parametrize("vector", VECTORS)
def test_the_second_implementation_answers_as_the_vector_says(vector):
    assert outcome(second_tree, vector) == expected(vector)


def test_there_are_good_and_bad_vectors_of_every_kind_and_the_second_implementation_knows_nothing_of_choral():
    vectors = [param.values[0] for param in VECTORS]
    kinds = {vector["kind"] for vector in vectors}
    assert kinds == {"tree", "climb", "circle", "tree_ctx", "shown", "roots"}
    refused = [vector["name"] for vector in vectors if "refused" in vector]
    assert len(refused) >= 18 and all(vector["origin"] for vector in vectors)
    text = (FOLDER / "second_tree.py").read_text(encoding="utf-8")
    assert "from choral" not in text and "import choral" not in text

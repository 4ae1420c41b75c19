"""Clusters as read off the approvals."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_core import clusters
from fl_core.types import AuthorId
from tests.reference import clusters as twin


def authors(letters: str) -> list[AuthorId]:
    return [AuthorId(letter) for letter in letters]


def approvals(*pairs: str) -> clusters.Approvals:
    """``ab`` is one transaction of a that approves b; ``a-`` approves genesis."""
    return clusters.count_approvals(
        (AuthorId(pair[0]), [None if pair[1] == "-" else AuthorId(pair[1])]) for pair in pairs
    )


TWO_TRIANGLES = approvals("ab", "bc", "ca", "de", "ef", "fd", "ad")


def test_approvals_are_counted_by_direction_without_oneself_and_genesis() -> None:
    counted = approvals("ab", "ab", "ba", "aa", "c-")
    assert counted.authors == ("a", "b", "c")
    assert counted.counts == {("a", "b"): 2, ("b", "a"): 1}
    assert counted.weights == {("a", "b"): 3}


def test_louvain_finds_two_triangles_that_one_edge_joins() -> None:
    assert clusters.find_clusters(TWO_TRIANGLES) == (("a", "b", "c"), ("d", "e", "f"))


def test_same_seed_gives_the_same_clusters() -> None:
    ring = approvals(*[f"{a}{b}" for a, b in zip("abcdefgh", "bcdefgha", strict=True)])
    assert clusters.find_clusters(ring, seed=4) == clusters.find_clusters(ring, seed=4)


def test_authors_without_approvals_stand_alone() -> None:
    assert clusters.find_clusters(approvals("a-", "b-")) == (("a",), ("b",))
    assert clusters.find_clusters(approvals()) == ()


def test_modularity_of_two_equal_pairs_is_one_half() -> None:
    assert clusters.modularity(approvals("ab", "cd"), (("a", "b"), ("c", "d"))) == 0.5


def test_modularity_without_edges_or_in_one_community_is_zero() -> None:
    assert clusters.modularity(approvals("a-", "b-"), (("a",), ("b",))) == 0.0
    assert clusters.modularity(approvals("ab"), (("a", "b"),)) == 0.0


@given(
    st.lists(st.sampled_from([x + y for x in "abcde" for y in "abcde"]), max_size=30),
    st.lists(st.integers(0, 2), min_size=5, max_size=5),
)
def test_modularity_agrees_with_the_double_sum_of_the_paper(pairs: list[str], labels: list[int]) -> None:
    counted = approvals(*pairs)
    labelled = dict(zip(authors("abcde"), labels, strict=True))
    mine = {author: labelled[author] for author in counted.authors}
    quality = clusters.modularity(counted, clusters.partition_by(mine))
    matrix = [
        [counted.counts.get((a, b), 0) + counted.counts.get((b, a), 0) for b in counted.authors]
        for a in counted.authors
    ]
    assert quality == pytest.approx(twin.modularity(matrix, list(mine.values())), abs=1e-12)
    assert -0.5 <= quality <= 1


def test_modularity_refuses_what_is_no_partition() -> None:
    for partition in ((authors("a"),), (authors("ab"), authors("b"))):
        with pytest.raises(ValueError, match="exactly once"):
            clusters.modularity(approvals("ab"), clusters.Partition(map(tuple, partition)))


def test_satisfaction_is_the_share_of_the_own_clusters_tips() -> None:
    rate = clusters.satisfaction_rate(authors("ab"), authors("abcxy"), authors("abcd"))
    assert rate == pytest.approx(2 / 3)


def test_satisfaction_without_a_tip_of_the_own_cluster_is_undefined() -> None:
    assert clusters.satisfaction_rate([], authors("xy"), authors("ab")) is None
    assert clusters.mean_satisfaction([1.0, None, 0.5]) == 0.75
    assert clusters.mean_satisfaction([None]) is None


def test_misclassified_authors_are_those_outside_their_communitys_majority() -> None:
    truth = dict(zip(authors("abcdef"), [0, 0, 0, 1, 1, 1], strict=True))
    partition = clusters.as_partition([authors("abcd"), authors("ef")])
    assert clusters.misclassified(partition, truth) == 1
    assert clusters.purity(partition, truth) == pytest.approx(5 / 6)
    assert partition != clusters.partition_by(truth)


def test_the_adjusted_rand_index_counts_pairs_beyond_chance() -> None:
    """4 pairs are together in both, 7 in the communities, 6 in truth, of 15: chance is 7 · 6 / 15 = 2.8, the most 6.5."""
    truth = dict(zip(authors("abcdef"), [0, 0, 0, 1, 1, 1], strict=True))
    partition = clusters.as_partition([authors("abcd"), authors("ef")])
    assert clusters.adjusted_rand_index(partition, truth) == pytest.approx((4 - 2.8) / (6.5 - 2.8))
    assert clusters.adjusted_rand_index(clusters.partition_by(truth), truth) == 1.0


@pytest.mark.parametrize("names", ["", "a", "abc"])
def test_the_adjusted_rand_index_of_one_cluster_found_as_one_is_one(names: str) -> None:
    truth = dict.fromkeys(authors(names), 0)
    assert clusters.adjusted_rand_index(clusters.partition_by(truth), truth) == 1.0


def test_all_in_one_community_is_worth_nothing_where_there_are_clusters() -> None:
    truth = dict(zip(authors("abcd"), [0, 0, 1, 1], strict=True))
    assert clusters.adjusted_rand_index(clusters.as_partition([authors("abcd")]), truth) == 0.0
    assert clusters.adjusted_rand_index(clusters.as_partition([[each] for each in authors("abcd")]), truth) == 0.0


def test_split_cluster_is_pure() -> None:
    truth = dict(zip(authors("abcde"), [0, 0, 0, 1, 1], strict=True))
    partition = clusters.as_partition([authors("ed"), authors("c"), authors("ba"), []])
    assert partition == (("a", "b"), ("c",), ("d", "e"))
    assert clusters.purity(partition, truth) == 1.0


def test_purity_of_nothing_is_one() -> None:
    assert clusters.purity((), {}) == 1.0


def test_networkx_is_loaded_only_when_louvain_runs() -> None:
    import subprocess
    import sys

    code = "import sys, fl_core.clusters; sys.exit('networkx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0

"""``dag-acfl topology``: figures of a graph in words, and its picture."""

from pathlib import Path

import numpy as np
import pytest

from dag_acfl.__main__ import main
from dag_acfl.commands.topology import label_counts


def shown(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["topology", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line[:29].strip(): line[29:] for line in lines}


def refused(*arguments: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["topology", *arguments]) == 1
    return capsys.readouterr().err


def test_d_cliques_of_a_thousand_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown("d-cliques", "--nodes", "1000", capsys=capsys) == {
        "nodes": "1,000",
        "edges": "9,450",
        "mean degree": "18.9, from 18 to 19",
        "edges per node": "18.9",
        "messages per node and round": "18.9",
        "with Clique Averaging": "37.8",
        "cliques": "100 of up to 10 nodes",
        "diameter": "3 hops",
        "gain": "31.62 (initial weights are scaled by it)",  # nearly regular: the square root of 1,000
    }


def test_a_ring_of_ten_has_a_diameter_of_five(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown("ring", "--nodes", "10", capsys=capsys)
    assert (found["edges"], found["diameter"], found["gain"].split()[0]) == ("10", "5 hops", "3.162")
    assert "cliques" not in found


def test_parameters_and_seeds_are_heeded(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("barabasi-albert", "--nodes", "50", "--set", "m=4")
    first = shown(*arguments, "--seed", "3", capsys=capsys)
    assert first["edges"] == str(4 * (50 - 4))
    assert first == shown(*arguments, "--seed", "3", capsys=capsys)
    assert first != shown(*arguments, "--seed", "4", capsys=capsys)


def test_a_picture_is_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "grid.svg"
    assert shown("grid", "--nodes", "9", "--picture", str(path), capsys=capsys)["picture"] == str(path)
    assert b"<svg" in path.read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("star",), "known: barabasi-albert"),
        (("ring", "--set", "k=2"), "no parameter 'k'"),
        (("k-regular", "--nodes", "4"), "lower k"),
        (("d-cliques", "--nodes", "15"), "greedy-swap"),
        (("complete", "--nodes", "5001"), "up to 5,000 nodes"),
        (("ring", "--nodes", "500", "--picture", "ring.png"), "up to 499 nodes"),
        (("ring", "--picture", "ring.txt"), "must end in .png, .svg, .pdf"),
    ],
)
def test_a_refusal_is_one_line_that_names_the_fix(
    arguments: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(*arguments, capsys=capsys)
    assert words in said
    assert len(said.splitlines()) == 1


def test_every_class_is_at_as_many_nodes() -> None:
    counts = label_counts(30, 2, rng=np.random.default_rng(0))
    assert counts.sum(axis=1).tolist() == [2] * 30
    assert counts.sum(axis=0).tolist() == [6] * 10

"""A figure in a sentence about results stands in a table of its section, or derived_figures.toml says what it comes from.

Tables are generated from committed results; sentences are not. When an experiment is played anew, what fails here is
what must be written anew. Whole numbers are not looked at, and a figure of few digits may stand in a table by chance. So
this finds what was forgotten, not what somebody makes up.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
import pytest

from fl_simulator.report import half_interval

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "experiments"
FOLDERS = {
    "docs/clients.md": (),
    "docs/papers/clustered.md": ("clustered",),
    "docs/papers/d-cliques.md": ("d_cliques",),
    "docs/papers/dag-acfl.md": ("dag-acfl",),
    "docs/papers/decdiff.md": ("decdiff",),
    "docs/papers/uncoordinated-initialisation.md": ("uncoordinated_initialisation",),
    "docs/findings.md": ("findings",),
    "docs/privacy.md": (),
    "docs/security.md": ("attacks",),
    "docs/selection.md": ("clustered", "dag-acfl"),
}
"""Each page with the folders whose settings, and what papers report, may be quoted, too."""
DERIVED = tomllib.loads((Path(__file__).parent / "derived_figures.toml").read_text("utf-8"))
FIGURE = re.compile(r"(?<![\w.,^])(?<!\w-)[-+]?\d+\.\d+(?![\d.]*\w)")
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
NO_SENTENCE = re.compile(
    r"```.*?```|`[^`]*`|\]\([^)]*\)|(?:Fig\.|Sec\.|Eq\.|Python) [\d.]+|^#[^\n]*", re.DOTALL | re.MULTILINE
)
SENTENCE_END = re.compile(r"(?<=[.:;)])\s+|\n\s*\n|\n\* ")
Source = str | Mapping[str, Any]
read_runs = cache(pd.read_csv)  # many figures come from the same file
ARITHMETIC = re.compile(r"[\d\s.+*/()-]+")


def sections(page: Path) -> Iterator[tuple[str, str]]:
    """Sentences of each section of a page, and its tables; what stands above the first has all tables."""
    text = page.read_text("utf-8")
    for place, section in enumerate(re.split(r"^(?=## )", text, flags=re.MULTILINE)):
        tables = "".join(GENERATED.findall(section if place else text))
        yield NO_SENTENCE.sub(" ", GENERATED.sub(" ", section)), tables


def figures(text: str) -> list[str]:
    return FIGURE.findall(text.replace(",", ""))


def quoted(folders: tuple[str, ...]) -> set[str]:
    """Figures of the experiments' files, and what their papers report."""
    files = [file for folder in folders for file in (EXPERIMENTS / folder).rglob("*.*")]
    texts = [file.read_text("utf-8") for file in files if file.suffix in (".toml", ".csv")]
    return {each for text in texts for each in figures(text.replace(",", " "))}


def is_rounded(figure: str, known: str) -> bool:
    """A figure without a sign may stand for one of either."""
    half = 0.5 * 10.0 ** -len(figure.partition(".")[2])
    return abs(float(figure) - (float(known) if figure[0] in "+-" else abs(float(known)))) <= half + 1e-9


def stands_in(figure: str, known: set[str]) -> bool:
    return any(is_rounded(figure, each) for each in known)


def mean_and_ends(source: Mapping[str, Any]) -> tuple[float, ...]:
    """The mean of runs ``of``; ``less`` others of the same seeds, the mean difference and its 95 % interval."""
    runs = read_runs(EXPERIMENTS / "results" / source["runs"])

    def values(chosen: Mapping[str, Any]) -> pd.Series:
        for column, value in chosen.items():
            assert value in set(runs[column]), f"no run has {column} = {value}"
        mine = runs[(runs[list(chosen)] == list(chosen.values())).all(axis="columns")]
        assert mine.seed.is_unique, f"several runs of a seed have {chosen}"
        return source.get("times", 1) * mine.set_index("seed")[source["column"]]

    if "less" not in source:
        return (values(source["of"]).mean(),)
    differences = values(source["of"]) - values(source["less"])
    assert differences.notna().all()
    mean, half = differences.mean(), half_interval(differences.tolist())
    return mean, mean - half, mean + half


def unexplained(page: str) -> list[str]:
    """Figures of the page's sentences that come from nowhere."""
    elsewhere, derived = quoted(FOLDERS[page]), DERIVED.get(page, {})
    missing = []
    for text, tables in sections(ROOT / page):
        known = {*figures(tables), *elsewhere}
        missing += [
            f"{figure} in: {' '.join(sentence.split())}"
            for sentence in SENTENCE_END.split(text)
            for figure in figures(sentence)
            if figure.lstrip("+-") not in derived and not stands_in(figure, known)
        ]
    return missing


@pytest.mark.parametrize("page", FOLDERS)
def test_figures_in_sentences_stand_in_tables(page: str) -> None:
    assert unexplained(page) == []


def test_results_in_the_readme_are_the_committed_ones() -> None:
    demo = json.loads((ROOT / "benchmarks" / "results" / "demo.json").read_text("utf-8"))["facts"]["mean_accuracy"]
    alone, fedavg, ours = (f"{fmean(demo[name]):.3f}" for name in ("local-only", "FedAvg", "DAG-ACFL"))
    rows = [f"| demo, 3 seeds: alone / FedAvg / DAG-ACFL | {alone} / {fedavg} / **{ours}** |"]

    def mean(model: str, method: str) -> str:
        runs = pd.read_csv(EXPERIMENTS / "results" / "dag-acfl" / f"table_2_{model}" / "summary.csv")
        runs = runs[(runs.method == method) & (runs.participation == 1) & runs.setting.str.contains(r"type II\)")]
        return f"{runs.accuracy.mean():.3f}"

    def others(model: str) -> str:
        return ", ".join(mean(model, method) for method in ("oracle", "FeSEM (k-means)", "CFL", "Fedavg"))

    rows += [
        f"| MNIST, 90 clients (DAG-ACFL Table II), LR | **{mean('lr', 'DAG-ACFL')}** |",
        f"| – true groups; FeSEM by k-means, told three; CFL; FedAvg | {others('lr')} |",
        f"| – MLP; the same four | **{mean('mlp_type_ii', 'DAG-ACFL')}**; {others('mlp_type_ii')} |",
    ]
    by_default = " and ".join(mean(model, "DAG-ACFL (as ledger init)") for model in ("lr", "mlp_type_ii"))
    rows.append(f"as `ledger init` makes it, it comes to {by_default}")
    readme = (ROOT / "README.md").read_text("utf-8")
    assert [row for row in rows if row not in readme] == []


def test_as_many_updates_survived_faults_as_the_reports_of_real_servers_have() -> None:
    row = re.compile(r"^\| `(\w+)` \|.*\| ([\d,]+) \| (\d+) \| (?:yes|\*\*no)", re.MULTILINE)
    reports = row.findall((ROOT / "docs/faults.md").read_text("utf-8"))
    on_servers = [
        (int(acknowledged.replace(",", "")), lost) for part, acknowledged, lost in reports if part != "simulation"
    ]
    assert {lost for _, lost in on_servers} == {"0"}
    survived = f"0 of {sum(acknowledged for acknowledged, _ in on_servers):,}"
    for page in ("README.md", "benchmarks/README.md"):
        assert survived in (ROOT / page).read_text("utf-8")


@pytest.mark.parametrize("page", FOLDERS)
def test_derived_figures_are_what_they_are_derived_from(page: str) -> None:
    text = (ROOT / page).read_text("utf-8")
    known = {*figures("".join(GENERATED.findall(text))), *quoted(FOLDERS[page])}
    tables = {each.lstrip("+-") for each in known}
    sentences = {each.lstrip("+-") for each in figures(NO_SENTENCE.sub(" ", GENERATED.sub(" ", text)))}
    before: Source = ""
    for figure, told in DERIVED.get(page, {}).items():
        assert figure in sentences, f"no sentence has {figure} any more"
        source = before = before if told == "the same" else told
        if not isinstance(source, str):
            assert any(is_rounded(figure, str(each)) for each in mean_and_ends(source)), f"{figure} is not {source}"
        elif ARITHMETIC.fullmatch(source):
            assert set(figures(source)) <= tables, f"{figure} = {source}: not in the tables"
            assert is_rounded(figure, str(abs(eval(source)))), f"{figure} is not {source}"


def test_a_figures_sign_counts_where_it_has_one() -> None:
    assert figures("from -0.5 to +0.25, 0.03-0.05 and 2.0") == ["-0.5", "+0.25", "0.03", "2.0"]
    assert [is_rounded(each, "-0.123") for each in ("-0.12", "0.12", "+0.12")] == [True, True, False]


def test_a_figure_that_no_table_has_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## One\n\nIt has 0.5, 0.12 and 0.13.\n<!-- generated: a -->| 0.123 |<!-- end -->\n")
    (_, _), (sentences, tables) = sections(page)
    assert figures(sentences) == ["0.5", "0.12", "0.13"]
    assert [each for each in figures(sentences) if stands_in(each, set(figures(tables)))] == ["0.12"]


def test_differences_are_taken_between_runs_of_the_same_seed(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("method,seed,accuracy\na,0,3\na,1,5\nb,1,1\nb,0,1\n", "utf-8")
    source = {"runs": tmp_path / "runs.csv", "column": "accuracy", "of": {"method": "a"}, "less": {"method": "b"}}
    # 2 and 4: the mean is 3, their standard deviation √2, and Student's t for two values 12.706.
    assert mean_and_ends(source) == pytest.approx((3, 3 - 12.706, 3 + 12.706), abs=0.001)

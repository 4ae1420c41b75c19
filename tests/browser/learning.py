"""What the console says of learning, in Chromium: lineage by tensor, cuts, clusters over time, figures to keep."""

import json
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

from fl_core.clusters import count_approvals, find_clusters, modularity
from fl_core.models import flat
from fl_core.types import AuthorId
from fl_core.wire import v1
from tests.browser.pages import ledger, opened, page_of, taught
from tests.builders import LAYOUT
from tests.live import client_of


def saved(page: Page, button: str, place: int = 0) -> str:
    """What a button saves, as text."""
    with page.expect_download() as waiting:
        page.get_by_role("button", name=button).nth(place).click()
    return Path(waiting.value.path()).read_text(encoding="utf-8")


def test_an_update_and_its_parents_are_compared_tensor_by_tensor(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        newest = taught(live, tmp_path)[-1]
        with client_of(live.url) as client:
            said = client.get(v1.path(v1.TRANSACTION, transaction=newest)).json()
            genesis = client.get(v1.GENESIS).json()
            of = {
                each: client.get(v1.path(v1.TRANSACTION_MODEL, transaction=each)).content
                for each in (newest, *said["parents"])
            }
            began = flat(LAYOUT, client.get(genesis["model"]["href"]).content).astype(np.float64)
        opened(page, live, f"updates/{newest}", newest[:8])
        page.get_by_role("button", name="Compare with all").click()
        expect(page.get_by_role("columnheader", name=f"alike {said['parents'][-1][:8]}")).to_be_visible()
        table = page.locator("table", has_text="length of the step")
        own = flat(LAYOUT, of[newest]) - began
        for tensor, piece in zip(LAYOUT.tensors, LAYOUT.tensor_slices, strict=True):
            shown = table.locator("tr", has_text=tensor.name).locator("td").all_text_contents()[3:]
            learnt = [flat(LAYOUT, of[parent]) - began for parent in said["parents"]]
            expected = [
                np.dot(own[piece], each[piece]) / np.linalg.norm(own[piece]) / np.linalg.norm(each[piece])
                for each in learnt
            ]
            assert [float(each) for each in shown] == pytest.approx(expected, abs=6e-4), tensor.name


def test_what_an_update_says_can_be_taken_home(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        newest = taught(live, tmp_path)[-1]
        opened(page, live, f"updates/{newest}", newest[:8])
        with client_of(live.url) as client:
            path = v1.path(v1.TRANSACTION_ATTACHMENT, transaction=newest)
            assert json.loads(saved(page, "Download the selection")) == client.get(path).json()
            header = client.get(v1.path(v1.TRANSACTION, transaction=newest)).json()["header"]
        with page.expect_download() as waiting:
            page.get_by_role("button", name="Download the header").click()
        assert Path(waiting.value.path()).read_bytes() == bytes.fromhex(header)


CUTS = """async ([name, candidates]) => (await import("/ui/cuts.js")).cutsOf(name, candidates)"""


def test_the_score_of_a_cut_is_the_selectors_own(browser: Browser, tmp_path: Path) -> None:
    def candidates(scores: list[float | None]) -> list[dict[str, float | None]]:
        values = (1.0, 0.9, 0.2, 0.1)
        return [{"update_similarity": value, "score": score} for value, score in zip(values, scores, strict=True)]

    with ledger(tmp_path) as live, page_of(browser, live) as page:
        opened(page, live, "", "Nobody has published yet")
        beast = page.evaluate(CUTS, ["beast", candidates([None, 0.1, 0.8, 0.1])])
        assert (beast["scores"], "BEAST" in beast["name"]) == ([None, 0.1, 0.8, 0.1], True)
        squares = page.evaluate(CUTS, ["least-squares", candidates([None] * 4)])["scores"]
        # About the mean 0.55 the sum of squares is 0.65; cut in the middle, each part keeps 0.005.
        assert squares == [None, pytest.approx(0.27 / 0.65), pytest.approx(0.64 / 0.65), pytest.approx(0.27 / 0.65)]
        assert page.evaluate(CUTS, ["largest-gap", candidates([None] * 4)])["scores"] == [
            None,
            *map(pytest.approx, (0.1, 0.7, 0.1)),
        ]
        assert page.evaluate(CUTS, ["top-k", candidates([None] * 4)])["name"] == ""


GROUPS = """async (counts) => {
    const { communities, modularity } = await import("/ui/clustering.js");
    const held = new Map(Object.entries(counts).map(([author, row]) => [author, new Map(Object.entries(row))]));
    const groups = communities(held);
    return [groups, modularity(held, groups)];
}"""


def test_the_page_finds_the_clusters_that_the_server_finds(browser: Browser, tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    names = [f"key:{number:02d}" for number in range(30)]
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        opened(page, live, "", "Nobody has published yet")
        for clusters in (2, 3, 5):
            approved = [
                (AuthorId(names[a]), [AuthorId(names[b])])
                for a in range(30)
                for b in range(30)
                if a != b and rng.random() < (0.8 if a % clusters == b % clusters else 0.05)
            ]
            counted = count_approvals(approved)
            expected = find_clusters(counted)
            counts: dict[str, dict[str, int]] = {}
            for (giver, receiver), times in counted.counts.items():
                counts.setdefault(giver, {})[receiver] = times
            groups, found = page.evaluate(GROUPS, counts)
            assert sorted(tuple(each) for each in groups) == sorted(expected)
            assert len(expected) == clusters
            assert found == pytest.approx(modularity(counted, expected))
        assert page.evaluate(GROUPS, {}) == [[], 0]


def test_clusters_are_followed_over_time(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path, clients=4, steps=8)
        opened(page, live, "clusters", "Clusters")
        expect(page.get_by_role("heading", name="Who was with whom")).to_be_visible()
        counted, good = (
            [line.split(",") for line in saved(page, "Save as CSV", place).splitlines()[1:]] for place in (1, 2)
        )
        with client_of(live.url) as client:
            seen = client.get(v1.VIEW_UPDATES).json()
        authors = [AuthorId(seen["authors"][each]) for each in seen["author"]]
        for row, first in enumerate(range(0, 32, 8)):  # twice as many as there are clients, from genesis on
            part = range(max(first, 1), first + 8)
            approved = count_approvals(
                (authors[at], [authors[each] or None for each in seen["parents"][at] if each]) for at in part
            )
            found = find_clusters(approved)
            assert counted[row] == [str(first + 7), str(sum(len(group) > 1 for group in found))]
            assert float(good[row][1]) == pytest.approx(modularity(approved, found))


WAY = """async (places) => {
    const { way } = await import("/ui/clustering.js");
    return way(places.map((each, at) => ({ first: 10 * at, last: 10 * at + 9, places: new Map(Object.entries(each)) })), "ann");
}"""


def test_a_clients_way_goes_on_where_it_was_away_and_turns_where_others_were_with_it(
    browser: Browser, tmp_path: Path
) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        opened(page, live, "", "Nobody has published yet")
        found = page.evaluate(WAY, [{"ann": 0}, {"bob": 1}, {"ann": 0, "bob": 1}, {"ann": 1}])
        assert [(each["first"], each["last"], each["place"]) for each in found] == [(0, 29, 0), (30, 39, 1)]


def test_two_figures_over_bytes_can_be_kept_as_a_drawing(browser: Browser, tmp_path: Path) -> None:
    with ledger(tmp_path) as live, page_of(browser, live) as page:
        taught(live, tmp_path)
        opened(page, live, "training?metric=accuracy&beside=loss&by=mean&across=bytes", "Training")
        drawing = saved(page, "Save as SVG")
        assert drawing.startswith("<svg ")
        assert drawing.count("<polyline ") == 6
        assert "MB of models" in drawing
        assert "loss, mean" in drawing
        rows = saved(page, "Save as CSV").splitlines()[1:]
        assert [float(row.split(",")[0]) for row in rows] == pytest.approx(
            [2 * LAYOUT.nbytes * each / 1e6 for each in range(1, 13)]
        )

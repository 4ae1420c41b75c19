"""What a running demo and a trial draw, in the smallest terminal that people have: 80 columns by 24 lines."""

import io
import math
import threading
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dag_acfl.trial import plots
from dag_acfl.trial import view as trial_view
from dag_acfl.trial.panel import next_steps
from dag_acfl.trial.plots import plot_curves
from dag_acfl.trial.progress import Progress, Update
from dag_acfl.trial.run import Trial, _baselines
from dag_acfl.trial.view import LiveView, View
from fl_client.training.protocol import report_progress
from fl_core.types import JsonScalar
from fl_simulator.plots.style import new_figure
from fl_simulator.training.sites import SiteTrainers
from tests.tiny_trainer import TinyTrainer

KINDS = ("0°", "90°", "180°", "270°")
SITES, UPDATES = 16, 14


def finished() -> Progress:
    """Everybody has published everything; every site has moved from server 1 to server 2, and accuracy rose by 0.05."""
    progress = Progress([site % 4 for site in range(SITES)], UPDATES)
    for site in range(SITES):
        for number in range(1, UPDATES + 1):
            parents = (f"{(site + 4) % SITES}/1", f"{(site + 1) % SITES}/1")
            server = int(number > UPDATES // 2)
            update = Update(f"{site}/{number}", site, number, parents, server, 0.2 + 0.05 * number)
            progress.hear(update, server, 0.0)
    return progress


def test_the_demos_table_is_whole_in_80_columns_and_24_lines() -> None:
    view = LiveView(finished(), Console(width=80, height=24), title="dag-acfl demo", kinds=KINDS, servers=3)
    view.say("starting 16 clients, each a process, on " + ", ".join(f"http://127.0.0.1:{4000 + n}" for n in range(3)))
    console = Console(width=80, height=24, record=True, force_terminal=True, file=io.StringIO())
    console.print(view._render())
    lines = console.export_text().splitlines()
    title, headings, rule, first, *_ = lines
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert title.startswith("dag-acfl demo  starting 16 clients, each a process, on http://127.0.0.1:4000")
    assert headings.split() == ["site", "cluster", "server", "updates", "same", "foreign", "accuracy"]
    assert set(rule.strip()) == {"─"}
    assert first.split() == ["0", "●", "0°", "1", "→", "2", "14/14", "14", "14", "0.90", "▂▃▃▃▄▄▅▅▅▆▆▆▇▇"]
    for heading, value in (("updates", "14/14"), ("accuracy", "0.90")):
        assert headings.index(heading) + len(heading) == first.index(value) + len(value), (
            "numbers stand under their title"
        )


def test_curves_end_where_the_title_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Any] = []

    def noted(**size: float) -> Any:
        drawn.append(new_figure(**size))
        return drawn[-1]

    monkeypatch.setattr(plots, "new_figure", noted)
    methods = [
        {"name": name, "mean": mean, "values": [mean] * SITES}
        for name, mean in (("local-only", 0.75), ("FedAvg", 0.62), ("DAG-ACFL", 0.9375))
    ]
    plot_curves(tmp_path / "curves.png", finished(), kinds=KINDS, methods=methods, figure="accuracy")
    ((figure, axes),) = drawn
    assert "DAG-ACFL 0.94" in figure.texts[0].get_text()
    bold = [line for line in axes.lines if line.get_label() in KINDS]
    assert [line.get_ydata()[-1] for line in bold] == [0.9375] * 4


def test_a_loss_that_is_not_finite_is_told_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress([0, 0], 1)
    progress.figure = "loss"
    view = View(progress, Console(width=80))
    for site, loss in enumerate((0.5, math.nan)):
        update = Update(f"{site}/1", site, 1, (), 0, loss)
        progress.hear(update, 0, 0.0)
        view.show(update)
    assert "1 of 1 updates: loss 0.500 at 1 of 2 sites, elsewhere not finite, 0 models" in capsys.readouterr().out
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(LiveView(progress, console, title="try", kinds=(), servers=1)._render())
    assert [line.split()[3:] for line in console.export_text().splitlines() if "1/1" in line] == [["0.50", "█"], ["–"]]


def test_what_a_trial_compares_with_tells_how_far_each_training_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial_view, "_WORK_EVERY_S", 0.0)
    console = Console(width=80, record=True, file=io.StringIO())
    sites = SiteTrainers([TinyTrainer(0.0, during=lambda: report_progress("epoch 2 of 3, batch 5 of 9"))] * 2)
    trial = Trial(
        name="try",
        file=Path("mine.py"),
        sites=2,
        updates=1,
        epochs=3,
        out=Path(),
        servers=1,
        port=0,
        keep_serving=False,
    )
    _baselines(trial, sites, "accuracy", View(Progress([0, 0], 1), console), threading.Event())
    told = [line.partition("] ")[2] for line in console.export_text().splitlines()]
    # Each site once to count its samples, then two rounds of each method.
    assert told[1:3] == [
        "0 of 10 trainings to compare with; epoch 2 of 3, batch 5 of 9",
        "1 of 10 trainings to compare with",
    ]
    assert told[-1] == "10 of 10 trainings to compare with"


def test_the_end_says_which_site_the_console_calls_what(capsys: pytest.CaptureFixture[str]) -> None:
    authors = {f"key:{digit * 64}": site for site, digit in ((1, "b"), (0, "a"))}
    console = Console(width=110)
    console.print(next_steps(Path("out"), file=None, settings={}, epochs=3, urls=("http://x",), authors=authors))
    assert "Sites there: 0 is key:aaaaaaaa, 1 is key:bbbbbbbb" in capsys.readouterr().out


def test_the_next_commands_say_again_what_was_tried_and_nothing_that_is_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def shown(settings: dict[str, JsonScalar], epochs: int) -> list[str]:
        Console(width=110).print(
            next_steps(Path("out"), file=Path("cnn.py"), settings=settings, epochs=epochs, urls=(), authors={})
        )
        return [line.strip() for line in capsys.readouterr().out.splitlines() if line.startswith("  dag-acfl")]

    assert shown({}, 3) == [
        "dag-acfl ledger view out/ledger.dagacfl",
        "dag-acfl ledger verify out/ledger.dagacfl",
        "dag-acfl ledger init --name pilot --client cnn.py",
        "dag-acfl serve",
        "dag-acfl client run cnn.py --set site=0   # at each other site its own number",
    ]
    _, _, ledger, _, client = shown({"width": 64, "data": "my images"}, 5)
    assert ledger == (
        "dag-acfl ledger init --name pilot --client cnn.py --set width=64 --set 'data=my images' --hint epochs=5"
    )
    assert client.startswith("dag-acfl client run cnn.py --set site=0 --set width=64 --set 'data=my images'")

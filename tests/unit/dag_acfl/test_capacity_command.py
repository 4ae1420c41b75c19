"""``dag-acfl capacity``: a table that an operator can read, the same as JSON, and errors that name the option."""

import json

import pytest

from dag_acfl.__main__ import main
from dag_acfl.commands.capacity import number, period, rate, size

HOSPITALS = (
    "--devices",
    "50",
    "--every",
    "10m",
    "--model-mb",
    "13",
    "--servers",
    "3",
    "--coding",
    "rounded",
    "--keep",
    "30",
)
DEVICES = ("--devices", "10000", "--every", "1m", "--model-mb", "13")


def shown(*arguments: str, capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert main(["capacity", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line[:22].strip(): line[22:] for line in lines}


def test_hospitals_are_told_what_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(*HOSPITALS, capsys=capsys)
    assert found["updates"] == "0.083 a second in all; averages of 50 models"
    assert found["processes"] == "1 (serve --workers)"
    assert found["database"] == "SQLite; models in a directory"
    assert "times this load" in found["limits first"]
    assert {"network of a client", "network of a server", "disk of a server", "memory", "connections"} <= found.keys()
    assert "out of reach" not in found


def test_what_is_out_of_reach_is_said_with_what_would_fit(capsys: pytest.CaptureFixture[str]) -> None:
    said = shown(*DEVICES, capsys=capsys)["out of reach"]
    assert "it would take" in said
    assert "More servers do not help" in said
    every = said.rpartition("An update each ")[2].split()[0]
    fitting = shown(
        *DEVICES[:2], "--every", f"{int(every[:-1]) + 1}{every[-1]}", *DEVICES[4:], "--keep", "0", capsys=capsys
    )
    assert "out of reach" not in fitting


def test_all_figures_come_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capacity", *HOSPITALS, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["demand"]["every_s"] == 600
    assert found["needs"]["updates_per_s"] == pytest.approx(50 / 600)
    assert found["needs"]["limits"][0].keys() == {"name", "share", "remedy"}


def test_all_models_are_kept_if_one_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "of models all of them stay" in shown(*HOSPITALS[:-1], "all", capsys=capsys)["disk of a server"]


@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        (("--model-mb", "1"), "Missing option '--devices'", 2),
        (("--devices", "5", "--model-mb", "1", "--every", "hourly"), "no duration; write it as 90s, 10m, 2h or 1d", 1),
        (("--devices", "5", "--model-mb", "1", "--keep", "some"), "--keep is a number of days, or all; not 'some'", 1),
        (("--devices", "5", "--model-mb", "nan"), "--model-mb must be from 0.0001 to 10,000, not nan", 1),
        (
            ("--devices", "5", "--model-mb", "1", "--keep", "nan"),
            "--keep must be from 0 to 36,500 days; or all, not nan",
            1,
        ),
        (("--devices", "5", "--model-mb", "1", "--clusters", "6"), "--clusters must be from 1 to 5", 1),
        (("--devices", "5", "--model-mb", "1", "--coding", "zip"), "--coding is one of whole, exact, rounded", 1),
    ],
)
def test_a_refusal_is_one_line_that_names_the_option(
    arguments: tuple[str, ...], words: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["capacity", *arguments]) == code
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_figures_are_shown_to_two_digits() -> None:
    assert [number(each) for each in (0.00312, 2.84, 99.6, 172, 1_240)] == ["0.0031", "2.8", "100", "170", "1,200"]
    assert [size(each) for each in (0, 999, 1_500, 13e6, 1.9e14)] == [
        "0 bytes",
        "1,000 bytes",
        "1.5 kB",
        "13 MB",
        "190 TB",
    ]
    assert [rate(each) for each in (10, 2_000, 36e6, 2.2e9)] == ["80 bit/s", "16 kbit/s", "290 Mbit/s", "18 Gbit/s"]
    assert [period(each) for each in (60, 90, 600, 3_600, 300_000)] == ["1m", "90s", "10m", "1h", "3d"]

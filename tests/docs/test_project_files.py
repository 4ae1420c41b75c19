"""What a host reads of the repository: citation, issue forms, hooks and workflows say what the project says elsewhere."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
FORMS = sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml"))
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text("utf-8"))["jobs"].values()
    return [step for job in jobs for step in job.get("steps", ())]


def test_the_citation_is_of_this_version_and_licence() -> None:
    assert (CITATION["version"], CITATION["license"]) == (PROJECT["version"], PROJECT["license"])
    assert [author["name"] for author in CITATION["authors"]] == [author["name"] for author in PROJECT["authors"]]


def test_the_citation_names_each_paper_as_the_pages_do() -> None:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs/papers").glob("*.md"))]
    text = " ".join(" ".join(page.read_text("utf-8").split()) for page in pages)
    assert len(CITATION["references"]) == 4
    for paper in CITATION["references"]:
        assert paper["title"].removeprefix("DAG-ACFL: ") in text
        assert f"[{paper['notes']}" in text, "the short name that the pages use"


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_each_field_of_an_issue_form_has_an_id_of_its_own_and_a_label(form: Path) -> None:
    fields = [field for field in yaml.safe_load(form.read_text("utf-8"))["body"] if field["type"] != "markdown"]
    assert len({field["id"] for field in fields}) == len(fields) > 1
    assert all(field["attributes"]["label"] for field in fields)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda workflow: workflow.stem)
def test_actions_are_named_by_commit_and_what_they_run_is_here(workflow: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
    for line in re.findall(r"uses: (.*)", workflow.read_text("utf-8")):
        assert re.fullmatch(r"\./\S+|[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line
    for command in (step["run"] for step in steps(workflow) if "run" in step):
        assert set(re.findall(r"^make ([a-z-]+)", command, re.MULTILINE)) <= targets
        assert all((ROOT / path).exists() for path in re.findall(r"(?<!\S)(?:\.ci|tests)/\S+", command))


def test_hooks_run_what_make_runs() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8").replace("$(BIN)", ".venv/bin")
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"][0]["hooks"]
    for hook in hooks:
        assert re.sub(r" --[a-z-]+", "", hook["entry"]) in makefile

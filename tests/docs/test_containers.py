"""Dockerfile and docker-compose.yml, read without an engine: everything that they name exists and fits together.

By hand the same steps were run in a bare folder; docs/containers.md says how.
"""

import fnmatch
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from docs.parts.commands import commands
from ledger_server.settings import Settings

ROOT = Path(__file__).parents[2]
PASSWORDS = {"POSTGRES_PASSWORD", "LEDGER_A_PASSWORD", "LEDGER_B_PASSWORD", "LEDGER_C_PASSWORD", "GRAFANA_PASSWORD"}
OWN_VARIABLES = {"LEDGER_NAME", "TORCH_INDEX"} | PASSWORDS
"""Of .env.example, beside the server's settings: read by docker-compose.yml alone."""


@dataclass
class Stage:
    """One FROM and what follows it."""

    name: str
    base: str
    steps: list[tuple[str, str]] = field(default_factory=list)

    def all(self, instruction: str) -> list[str]:
        return [text for name, text in self.steps if name == instruction]


def dockerfile() -> tuple[dict[str, str], list[Stage]]:
    """Global arguments and stages; continued lines joined, comments gone."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    arguments: dict[str, str] = {}
    stages: list[Stage] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        instruction, _, text = line.partition(" ")
        if instruction == "FROM":
            base, _, name = text.partition(" AS ")
            stages.append(Stage(name, base))
        elif not stages:
            name, _, value = text.partition("=")
            arguments[name] = value
        else:
            stages[-1].steps.append((instruction, text.strip()))
    return arguments, stages


ARGUMENTS, STAGES = dockerfile()
BY_NAME = {stage.name: stage for stage in STAGES}
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
NAMES = ("a", "b", "c")
OURS = {"client", *(f"{kind}-{name}" for kind in ("prepare", "server") for name in NAMES)}
THEIRS = {"postgres", "prometheus", "grafana"}


def chain(stage: Stage) -> Iterator[Stage]:
    """The stage and those that it is built on."""
    yield stage
    if stage.base in BY_NAME:
        yield from chain(BY_NAME[stage.base])


def settings_variables() -> set[str]:
    found = set()
    for name, setting in Settings.model_fields.items():
        group = setting.annotation
        if isinstance(group, type) and issubclass(group, BaseModel):
            found |= {f"DAG_ACFL_{name}__{inner}".upper() for inner in group.model_fields}
        else:
            found.add(f"DAG_ACFL_{name}".upper())
    return found


def check_command(words: list[str]) -> None:
    """``dag-acfl`` and these words are a command of ours with options that it has."""
    assert words[0] == "dag-acfl"
    (found,) = [
        name for name in commands() if " ".join(words[1:]).startswith(f"{name} ") or " ".join(words[1:]) == name
    ]
    rest = words[1 + len(found.split()) :]
    with commands()[found].make_context(found, list(rest)) as context:
        assert context.info_name == found


def test_every_stage_has_a_name_and_is_used() -> None:
    used = {stage.base for stage in STAGES} | {"server", "client"}
    used |= {match[1] for stage in STAGES for text in stage.all("COPY") if (match := re.match(r"--from=(\S+)", text))}
    assert {stage.name for stage in STAGES} == used & {stage.name for stage in STAGES}
    assert all(stage.name for stage in STAGES)


def test_base_images_are_named_with_a_version() -> None:
    images = [ARGUMENTS[stage.base[2:-1]] for stage in STAGES if stage.base.startswith("${")]
    images += [service["image"] for service in SERVICES.values()]
    assert all(stage.base.startswith("${") or stage.base in BY_NAME for stage in STAGES)
    for image in images:
        _, colon, tag = image.partition(":")
        assert colon, image
        assert re.match(r"v?[0-9]", tag), image


@pytest.mark.parametrize("target", ["server", "client"])
def test_image_runs_as_a_user_without_rights(target: str) -> None:
    users = [text for stage in chain(BY_NAME[target]) for text in stage.all("USER")]
    assert users == ["10001:10001"]
    owned = [text for stage in chain(BY_NAME[target]) for text in stage.all("RUN") if "/data" in text]
    assert any("--owner=10001" in text for text in owned)


@pytest.mark.parametrize("target", ["server", "client"])
def test_image_starts_a_command_of_ours(target: str) -> None:
    (entry,) = [json.loads(text) for stage in chain(BY_NAME[target]) for text in stage.all("ENTRYPOINT")]
    (arguments,) = [json.loads(text) for text in BY_NAME[target].all("CMD")]
    check_command([*entry, *arguments])


def test_only_the_client_gets_torch() -> None:
    server = [text for stage in chain(BY_NAME["server"]) for text in stage.all("RUN") + stage.all("COPY")]
    packages = [text for stage in chain(BY_NAME["server-packages"]) for text in stage.all("RUN")]
    assert not [text for text in server + packages if "torch" in text or "client-packages" in text]
    assert [text for text in BY_NAME["client-packages"].all("RUN") if "^torch==" in text]


def test_every_install_is_constrained_and_leaves_no_cache() -> None:
    installs = [text for stage in STAGES for text in stage.all("RUN") if re.search(r"pip (install|wheel)", text)]
    assert len(installs) == 5
    assert all("--no-cache-dir" in text for text in installs)
    assert any("PIP_CONSTRAINT=/src/constraints.txt" in text for text in BY_NAME["build"].all("ENV"))
    assert not [
        text for stage in STAGES for text in stage.all("RUN") if re.search(r"sudo|curl|wget|apt-get upgrade", text)
    ]
    assert not [text for stage in STAGES for text in stage.all("ADD")]


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    rules = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert rules[0] == "*"
    for stage in STAGES:
        for text in stage.all("COPY"):
            if text.startswith("--from="):
                assert text.split()[0].removeprefix("--from=") in BY_NAME
                continue
            *sources, _ = text.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert f"!{source}" in rules, source
    kept = [rule[1:] for rule in rules if rule.startswith("!")]
    assert all((ROOT / name).exists() for name in kept)
    assert not [name for name in kept if fnmatch.fnmatch(name, "*.pem") or name.startswith(".")]


def test_packages_of_the_wheel_are_all_copied() -> None:
    copied = {text.split()[0] for text in BY_NAME["build"].all("COPY")}
    assert {"fl_core", "ledger_server", "fl_client", "fl_simulator", "dag_acfl", "migrations"} <= copied


def test_variables_of_the_images_and_services_are_settings() -> None:
    named = {word for stage in STAGES for text in stage.all("ENV") for word in re.findall(r"\b(DAG_ACFL_\w+)=", text)}
    for service in SERVICES.values():
        named |= {name for name in service.get("environment", {}) if name.startswith("DAG_ACFL_")}
    assert named
    assert named <= settings_variables()


def test_environment_file_names_what_is_read() -> None:
    text = (ROOT / ".env.example").read_text()
    named = set(re.findall(r"^#? ?([A-Z_]+)=", text, re.MULTILINE))
    asked = set(re.findall(r"\$\{([A-Z_]+)", (ROOT / "docker-compose.yml").read_text()))
    assert named == asked
    assert named <= settings_variables() | OWN_VARIABLES


def test_no_secret_stands_in_the_repository() -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    for name in PASSWORDS:
        assert not re.search(rf"^{name}=.+", (ROOT / ".env.example").read_text(), re.MULTILINE)
        assert re.search(rf"\$\{{{name}:\?", text), f"without {name}, Compose says so and starts nothing"
        assert f"${{{name}:-" not in text
    assert not re.search(r"PASSWORD: (?!\$\{)", text)


def test_health_check_asks_a_route_of_the_server() -> None:
    (text,) = BY_NAME["server"].all("HEALTHCHECK")
    command = json.loads(text[text.index("CMD [") + 4 :])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "HEALTHCHECK", "exec")
    assert "/readyz" in command[2]
    assert "DAG_ACFL_PORT=8900" in " ".join(BY_NAME["server"].all("ENV"))
    assert BY_NAME["server"].all("EXPOSE") == ["8900"]


def test_every_service_has_no_more_rights_than_it_needs() -> None:
    assert set(SERVICES) == OURS | THEIRS
    for name, service in SERVICES.items():
        assert service["restart"] in ("no", "on-failure", "unless-stopped"), name
        assert service["read_only"]
        assert "/tmp" in service["tmpfs"]
        assert service["cap_drop"] == ["ALL"]
        assert "cap_add" not in service
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert not {"privileged", "pid", "network_mode"} & service.keys()
        assert "container_name" not in service, "a named container cannot be scaled"
        assert service["logging"]["options"].keys() == {"max-size", "max-file"}, "logs must not fill the disk"
        if name in OURS:
            assert service["build"]["target"] in ("server", "client"), "their images run as 10001"
        else:
            assert service["user"].split(":")[0] not in ("", "root", "0")


def test_every_service_is_bounded() -> None:
    for name, service in SERVICES.items():
        limits = service["deploy"]["resources"]["limits"]
        assert limits.keys() == {"cpus", "memory", "pids"}, name
        assert re.fullmatch(r"[12]G", limits["memory"])


def test_databases_are_reached_by_the_servers_only() -> None:
    assert COMPOSE["networks"]["database"] == {"internal": True}
    on_it = {name for name, service in SERVICES.items() if "database" in service["networks"]}
    assert on_it == OURS - {"client"} | {"postgres"}
    assert SERVICES["postgres"]["networks"] == ["database"]
    used = {network for service in SERVICES.values() for network in service["networks"]}
    assert used == set(COMPOSE["networks"])


def test_every_server_has_a_database_a_key_and_a_port_of_its_own() -> None:
    for port, name in enumerate(NAMES, start=8900):
        place = f"postgresql+psycopg://ledger_{name}:${{LEDGER_{name.upper()}_PASSWORD}}@postgres/ledger_{name}"
        server, prepare = SERVICES[f"server-{name}"], SERVICES[f"prepare-{name}"]
        for service in (server, prepare):
            assert service["environment"]["DAG_ACFL_DATABASE_URL"] == place
            assert f"server-{name}:/data" in service["volumes"]
        assert prepare["environment"]["SERVER"] == f"server-{name}"
        assert "shared:/shared" in prepare["volumes"]
        assert "shared:/shared:ro" in server["volumes"]
        assert server["ports"] == [f"127.0.0.1:{port}:8900"]
        assert {f"prepare-{each}" for each in NAMES} <= server["depends_on"].keys(), "whose keys it reads"


def test_what_a_service_waits_for_can_happen() -> None:
    for service in SERVICES.values():
        for other, wait in service.get("depends_on", {}).items():
            assert other in SERVICES
            healthy = "healthcheck" in SERVICES[other] or bool(
                BY_NAME.get(SERVICES[other].get("build", {}).get("target", ""), Stage("", "")).all("HEALTHCHECK")
            )
            if wait["condition"] == "service_healthy":
                assert healthy, other
            else:
                assert wait["condition"] == "service_completed_successfully"
                assert SERVICES[other]["restart"] == "no"
            assert SERVICES[other].get("profiles", []) in ([], service.get("profiles")), "what is off is not waited for"


def test_volumes_and_ports_fit() -> None:
    sources = [volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])]
    assert {source for source in sources if not source.startswith("./")} == set(COMPOSE["volumes"])
    assert all((ROOT / source).exists() for source in sources if source.startswith("./"))
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            assert not volume.startswith("./") or volume.endswith(":ro"), volume
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "nothing is served beyond this machine unless somebody says so"
            assert name.startswith("server-") or name == "grafana"
    assert "volumes" not in SERVICES["client"], "replicas must not share a state folder"


@pytest.mark.parametrize("folder", ["/data", "/shared"])
def test_folders_that_volumes_are_put_on_belong_to_the_user(folder: str) -> None:
    """A named volume takes its owner from the folder that the image has there."""
    (made,) = [text for text in BY_NAME["base"].all("RUN") if "install --directory" in text]
    assert folder in made.partition("install ")[2].split()


def test_scripts_of_the_services_call_commands_of_ours() -> None:
    called = set()
    for name in sorted(OURS - {"client"}):
        (script,) = SERVICES[name]["command"]
        for words in re.findall(r"(?:^|\s)(dag-acfl [^|>\n]*)", script.replace("$$", "$")):
            check_command(shlex.split(words))
            called.add(" ".join(words.split()[1:3]))
        assert SERVICES[name]["entrypoint"] == ["/bin/sh", "-euc"]
    assert called == {
        "db upgrade",
        "ledger join",
        "ledger inspect",
        "ledger init",
        "ledger export",
        "keys peer",
        "serve",
    }


def test_clients_know_every_server() -> None:
    arguments = SERVICES["client"]["command"]
    check_command(["dag-acfl", *arguments])
    named = [value for option, value in pairwise(arguments) if option == "--server"]
    assert named == [f"http://server-{name}:8900" for name in NAMES]


def test_client_file_of_the_image_is_a_client() -> None:
    (arguments,) = [json.loads(text) for text in BY_NAME["client"].all("CMD")]
    file = ROOT / arguments[2].removeprefix("/opt/")
    assert file.exists()
    assert arguments[2] in SERVICES["prepare-a"]["command"][0]
    assert arguments[2] in SERVICES["client"]["command"]
    assert "def trainer() -> Trainer:" in file.read_text()

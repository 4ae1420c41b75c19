"""Dockerfile, docker-compose.yml and the kustomize base, read without an engine: what they name exists and fits.

`make containers` runs the first two on one.
"""

import copy
import fnmatch
import json
import re
import runpy
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from pydantic import BaseModel

from docs.parts.commands import commands
from ledger_server.settings import Settings

ROOT = Path(__file__).parents[2]
PASSWORDS = {"POSTGRES_PASSWORD", "LEDGER_A_PASSWORD", "LEDGER_B_PASSWORD", "LEDGER_C_PASSWORD", "GRAFANA_PASSWORD"}
OWN_VARIABLES = {"CLIENTS", "LEDGER_NAME", "REVISION", "SCHEME", "TORCH_INDEX"} | PASSWORDS
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
OURS = {
    "access",
    "client",
    "members",
    "summary",
    *(f"{kind}-{name}" for kind in ("prepare", "server") for name in NAMES),
}
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
    copied = {text.split()[0] for text in BY_NAME["wheel"].all("COPY")}
    assert {"fl_core", "ledger_server", "fl_client", "fl_simulator", "dag_acfl", "migrations"} <= copied


def test_variables_of_the_images_and_services_are_settings() -> None:
    named = {word for stage in STAGES for text in stage.all("ENV") for word in re.findall(r"\b(DAG_ACFL_\w+)=", text)}
    for service in SERVICES.values():
        named |= {name for name in service.get("environment", {}) if name.startswith("DAG_ACFL_")}
        named |= set(re.findall(r"\b(DAG_ACFL_\w+)=", str(service.get("command"))))
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


def test_compose_tells_every_image_of_ours_its_commit() -> None:
    assert {SERVICES[name]["build"]["args"]["REVISION"] for name in OURS} == {"${REVISION:-unknown}"}
    assert "REVISION=unknown" in BY_NAME["wheel"].all("ARG")


def test_health_check_asks_a_route_of_the_server() -> None:
    (text,) = BY_NAME["server"].all("HEALTHCHECK")
    command = json.loads(text[text.index("CMD [") + 4 :])
    assert command[:2] == ["python", "-c"]
    compile(command[2], "HEALTHCHECK", "exec")
    assert "/readyz" in command[2]
    assert "SCHEME=http" in " ".join(BY_NAME["server"].all("ENV"))
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
    places = [volume.split(":")[1] for volume in SERVICES["client"]["volumes"]]
    assert "/data" not in places, "replicas must not share a state folder"


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
        "members add",
        "tokens create",
        "serve",
    }


def test_traces_go_through_and_every_service_that_makes_them_has_a_name() -> None:
    for name in ("client", *(f"server-{each}" for each in NAMES)):
        environment = SERVICES[name]["environment"]
        assert environment["OTEL_SERVICE_NAME"] == name
        assert environment["OTEL_EXPORTER_OTLP_ENDPOINT"] is None, "no value: whoever runs Compose gives it"
    assert "'otel'" in " ".join(BY_NAME["packages"].all("RUN"))


def test_clients_know_every_server() -> None:
    arguments = SERVICES["client"]["command"]
    check_command(["dag-acfl", *arguments])
    named = [value for option, value in pairwise(arguments) if option == "--server"]
    assert named == [f"${{SCHEME:-http}}://server-{name}:8900" for name in NAMES]


def test_client_file_of_the_image_is_a_client() -> None:
    (arguments,) = [json.loads(text) for text in BY_NAME["client"].all("CMD")]
    file = ROOT / arguments[2].removeprefix("/opt/")
    assert file.exists()
    assert arguments[2] in SERVICES["prepare-a"]["command"][0]
    assert arguments[2] in SERVICES["client"]["command"]
    assert "def trainer() -> Trainer:" in file.read_text()


def test_each_replica_takes_a_site_of_its_own_and_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    own = runpy.run_path(str(ROOT / "examples" / "container_client.py"))["_own"]
    taken = tmp_path / "sites"
    taken.mkdir()
    monkeypatch.setitem(own.__globals__, "TAKEN", taken)
    for site in (0, 1, 2, 1):
        monkeypatch.setitem(own.__globals__, "MINE", tmp_path / f"replica-{site}")
        assert own() == site
    assert sorted(path.name for path in taken.iterdir()) == ["0", "1", "2"]


@pytest.fixture(scope="module")
def base() -> dict[str, dict[str, Any]]:
    """What deploy/kustomize makes, by kind; the ConfigMap as its generator does."""
    folder = ROOT / "deploy" / "kustomize"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    made = [yaml.safe_load((folder / name).read_text()) for name in kustomization["resources"]]
    for each in kustomization["configMapGenerator"]:
        data = dict(literal.split("=", 1) for literal in each["literals"])
        made.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": each["name"]}, "data": data})
    return {each["kind"]: each for each in made}


@pytest.mark.parametrize("version", ["1.28", "1.37"])
def test_kubernetes_takes_the_base(base: dict[str, dict[str, Any]], version: str) -> None:
    assert base.keys() == {"ConfigMap", "Service", "StatefulSet"}
    for resource in base.values():
        kubernetes_validate.validate(resource, version, strict=True)
    misspelt = copy.deepcopy(base["StatefulSet"])
    misspelt["spec"]["template"]["spec"]["containers"][0]["readynessProbe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="readynessProbe"):
        kubernetes_validate.validate(misspelt, version, strict=True)


def test_pod_has_the_images_user_its_settings_and_probes_and_a_key_that_its_group_may_read(
    base: dict[str, dict[str, Any]],
) -> None:
    pod = base["StatefulSet"]["spec"]["template"]["spec"]
    (prepare,), (server,) = pod["initContainers"], pod["containers"]
    settings = base["ConfigMap"]["data"]
    mounts = {each["mountPath"]: each["name"] for each in server["volumeMounts"]}
    (secret,) = [volume["secret"] for volume in pod["volumes"] if volume["name"] == mounts["/etc/dag-acfl"]]
    assert secret["defaultMode"] == 0o440
    assert settings.keys() - {"LEDGER"} <= settings_variables()
    assert Path(settings["DAG_ACFL_SERVER_KEY"]).parent == Path(settings["LEDGER"]).parent == Path("/etc/dag-acfl")
    assert {mounts["/data"]} == {
        each["metadata"]["name"] for each in base["StatefulSet"]["spec"]["volumeClaimTemplates"]
    }
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 10001
    assert pod["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch", "a key in /data is its owner's alone"
    assert pod["enableServiceLinks"] is False, "a Service named dag-acfl would set DAG_ACFL_PORT to a URL"
    assert [port["containerPort"] for port in server["ports"]] == [8900]
    probed = [server[f"{kind}Probe"]["httpGet"]["path"] for kind in ("startup", "liveness", "readiness")]
    assert probed == ["/healthz", "/healthz", "/readyz"]
    assert pod["terminationGracePeriodSeconds"] > Settings().drain_delay_s + Settings().drain_s
    assert base["Service"]["spec"]["selector"] == base["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    for words in re.findall(r"(?:^|\s)(dag-acfl [^|>\n]*)", prepare["command"][-1]):
        check_command(shlex.split(words))

"""The scripts of docker-compose.yml, run as they stand there with paths of this machine: two servers, one ledger.

With TLS and tokens, as SCHEME=https has it. The third server's scripts are the second's.
"""

import os
import re
import ssl
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
import yaml
from sqlalchemy import make_url

from fl_client.client import LedgerClient
from fl_core.wire import v1
from tests.live import eventually, free_ports
from tests.postgres import Databases, conninfo

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
NAMES = ("a", "b", "c")
RUN = ("a", "b")
PROGRAMS = Path(sys.executable).parent


@pytest.fixture
def three_databases(postgresql: Databases) -> Iterator[dict[str, str]]:
    """What deploy/postgres/databases.sh makes, and nothing of it afterwards."""
    url = postgresql.server
    environment = {
        **os.environ,
        "PGHOST": str(url.query.get("host") or url.host),
        "POSTGRES_USER": str(url.username),
        **{f"LEDGER_{name.upper()}_PASSWORD": f"secret-{name}" for name in NAMES},
    }
    try:
        subprocess.run([ROOT / "deploy" / "postgres" / "databases.sh"], env=environment, check=True)
        yield {
            name: url.set(username=f"ledger_{name}", database=f"ledger_{name}").render_as_string(hide_password=False)
            for name in NAMES
        }
    finally:
        for name in NAMES:
            postgresql.run(f"DROP DATABASE IF EXISTS ledger_{name} WITH (FORCE)")
            postgresql.run(f"DROP ROLE IF EXISTS ledger_{name}")


def command(
    service: str, folder: Path, database_url: str, *, port: int, name: str | None = None
) -> tuple[list[str], dict[str, str]]:
    """A service's command and environment, its volumes being folders here; ``name`` of the server, unless its ends so."""
    (script,) = SERVICES[service]["command"]
    data = folder / (name or service[-1])
    here = {f"/{name}/": folder / name for name in ("shared", "access", "tmp", "$$name")}
    here |= {"/opt/examples/": ROOT / "examples", "/data/": data}
    script = re.sub("|".join(map(re.escape, here)), lambda match: f"{here[match[0]]}/", script)
    script = re.sub(r"--data-dir /(\$\$name|a)", rf"--data-dir {folder}/\1", script)
    script = script.replace("$$SCHEME://$$SERVER:8900", f"https://127.0.0.1:{port}")
    given = {name: str(value) for name, value in SERVICES[service].get("environment", {}).items() if value is not None}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("DAG_ACFL_")},
        **{name: value for name, value in given.items() if "${" not in value},
        "SCHEME": "https",
        "PATH": f"{PROGRAMS}{os.pathsep}{os.environ['PATH']}",
        "LEDGER_NAME": "pilot",
        "DAG_ACFL_DATA_DIR": str(data),
        "DAG_ACFL_DATABASE_URL": database_url,
        "DAG_ACFL_HOST": "0.0.0.0",
        "DAG_ACFL_PORT": str(port),
    }
    return [*SERVICES[service]["entrypoint"], script.replace("$$", "$")], environment


def to_its_end(called: tuple[list[str], dict[str, str]], folder: Path) -> None:
    arguments, environment = called
    done = subprocess.run(arguments, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def prepare(folder: Path, urls: dict[str, str], ports: dict[str, int], *names: str) -> dict[str, bytes]:
    """Run the scripts that prepare these servers, in the order given; returns what is in the shared folder then."""
    for name in names:
        to_its_end(command(f"prepare-{name}", folder, urls[name], port=ports[name]), folder)
    return {path.name: path.read_bytes() for path in (folder / "shared").iterdir()}


@contextmanager
def served(name: str, folder: Path, database_url: str, *, port: int) -> Iterator[str]:
    arguments, environment = command(f"server-{name}", folder, database_url, port=port)
    with subprocess.Popen(
        arguments, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as server:
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            assert line.startswith("serving on https://"), line
            yield f"https://127.0.0.1:{port}"
        finally:
            server.terminate()
            assert server.wait(30) == 0


def publish(url: str, folder: Path, token: str) -> str:
    """Genesis's own model as somebody's first transaction; returns its id."""
    with LedgerClient(url, token=token, ca_file=folder / "access" / "authority.pem") as client:
        genesis = client.genesis()
        model = client.download(genesis.model_digest)
        return client.publish(model, parents=[genesis.ledger], num_examples=1).id


def knows(client: httpx2.Client, url: str, others: set[str]) -> bool:
    return {each["name"] for each in client.get(f"{url}{v1.PEERS}").json()["items"]} == others


def has(client: httpx2.Client, url: str, transaction: str) -> bool:
    return client.get(url + v1.path(v1.TRANSACTION, transaction=transaction)).status_code == 200


def test_the_third_server_is_prepared_and_served_as_the_second() -> None:
    for service in ("prepare", "server"):
        assert SERVICES[f"{service}-c"]["command"] == SERVICES[f"{service}-b"]["command"]


@pytest.mark.timeout(300)  # twenty commands, each a process
def test_servers_of_one_ledger_know_each_other_and_hold_the_same_also_after_a_database_was_lost(
    three_databases: dict[str, str], tmp_path: Path, postgresql: Databases
) -> None:
    for folder in ("shared", "access", "tmp", "authority", "c"):
        (tmp_path / folder).mkdir()
    ports = dict(zip(RUN, free_ports(len(RUN)), strict=True))
    shared = prepare(tmp_path, three_databases, ports, *RUN)
    assert shared.keys() == {"ledger.dagacfl", "server-a.peer", "server-b.peer"}
    assert not [name for name, data in shared.items() if b"PRIVATE KEY" in data]
    postgresql.run("DROP DATABASE ledger_a WITH (FORCE)")
    postgresql.run("CREATE DATABASE ledger_a OWNER ledger_a")
    assert prepare(tmp_path, three_databases, ports, *RUN) == shared, "what was lost is joined again, twice is once"
    to_its_end(command("members", tmp_path, three_databases["a"], port=ports["a"], name="a"), tmp_path)
    to_its_end(command("access", tmp_path, three_databases["a"], port=0), tmp_path / "authority")
    token = (tmp_path / "access" / "site.token").read_text().strip()
    trusted = ssl.create_default_context(cafile=tmp_path / "access" / "authority.pem")
    with (
        ExitStack() as stack,
        httpx2.Client(verify=trusted, headers={"Authorization": f"Bearer {token}"}) as client,
        httpx2.Client(verify=trusted) as stranger,
    ):
        ledgers, keys, urls = set(), {}, list[str]()
        for name in RUN:
            for key in ("server-key.pem", "tls-key.pem"):
                assert stat.S_IMODE((tmp_path / name / key).stat().st_mode) == 0o600
            url = stack.enter_context(served(name, tmp_path, three_databases[name], port=ports[name]))
            urls.append(url)
            assert stranger.get(url + v1.PEERS).status_code == 401
            ledgers.add(client.get(f"{url}/version").json()["ledger"])
            keys[f"server-{name}"] = client.get(f"{url}{v1.PEERS}").json()["public_key"]
        for other, url in zip(reversed(RUN), urls, strict=True):
            eventually(partial(knows, client, url, {f"server-{other}"}))
        published = publish(urls[0], tmp_path, token)
        eventually(partial(has, client, urls[1], published))
    assert len(ledgers) == 1
    for name, key in keys.items():
        assert shared[f"{name}.peer"] == f"{name}=https://127.0.0.1:{ports[name[-1]]}#{key}\n".encode()


def test_a_servers_user_sees_no_other_servers_database(three_databases: dict[str, str]) -> None:
    for name in NAMES:
        for other in NAMES:
            url = make_url(three_databases[name]).set(database=f"ledger_{other}")
            if name == other:
                psycopg.connect(conninfo(url)).close()
            else:
                with pytest.raises(psycopg.OperationalError, match="permission denied"):
                    psycopg.connect(conninfo(url)).close()

"""A Flower app's folder: what its pyproject.toml says, and its two apps, imported as Flower imports them."""

import sys
import tomllib
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import Any

from click import ClickException
from flwr.common.config import flatten_dict, parse_config_args

from fl_client.errors import UserModuleError
from fl_client.training.errors import told
from fl_core.errors import DagAcflError, ParameterError


class NodeConfig(dict[str, Any]):
    """The configuration of one node; an app that asks for what is not there is told how to give it."""

    def __missing__(self, key: str) -> Any:
        given = " ".join(f"{name}={value}" for name, value in self.items())
        raise ParameterError(
            f'the app asks its node for {key!r}; give it by --node-config "{given}{given and " "}{key}=…"'
        )


class FlowerApp:
    """An app that lies in a folder, as ``flwr new`` makes them; nothing in it is changed.

    Args:
        folder: With the app's pyproject.toml.
        node_config: What distinguishes this node, such as ``partition-id=0 num-partitions=8``; written as for
            ``flower-supernode --node-config``.
        run_config: In place of values of the app's own configuration, written as for ``flwr run --run-config``.

    Raises:
        UserModuleError: The folder holds no Flower app.
        ParameterError: A configuration cannot be read, or names what the app's does not have.
    """

    def __init__(self, folder: Path | str, *, node_config: str = "", run_config: str = "") -> None:
        self.folder = Path(folder)
        self.node_config = NodeConfig(_read(node_config, "--node-config"))
        file = self.folder / "pyproject.toml"
        try:
            described = tomllib.loads(file.read_text("utf-8"))["tool"]["flwr"]["app"]
            self._components: dict[str, str] = {**described["components"]}
            self.run_config: dict[str, Any] = flatten_dict(described.get("config"))
        except OSError as error:
            raise UserModuleError(f"{self.folder} is no Flower app: {file} cannot be read: {error.strerror}") from error
        except KeyError as error:
            raise UserModuleError(
                f"{file} describes no Flower app: {error} of tool.flwr.app.components is missing"
            ) from error
        except (ValueError, TypeError) as error:
            raise UserModuleError(f"{file}: {error}") from error
        changed = _read(run_config, "--run-config")
        if unknown := sorted(changed.keys() - self.run_config.keys()):
            raise ParameterError(
                f"--run-config: the app has no {unknown[0]!r}; it has {', '.join(self.run_config) or 'none'}"
            )
        self.run_config.update(changed)

    def client_app(self) -> Any:
        """The ClientApp.

        Raises:
            UserModuleError: It cannot be imported, or hides models by secure aggregation.
        """
        app = self._imported("clientapp")
        secret = [name for mod in getattr(app, "_mods", ()) if "secagg" in (name := getattr(mod, "__name__", ""))]
        if secret:
            raise UserModuleError(
                f"{self.folder}: {secret[0]} hides each model from the server, and a ledger compares them: leave it out"
            )
        return app

    def server_app(self) -> Any:
        """The ServerApp. Raises as ``client_app`` does."""
        return self._imported("serverapp")

    def _imported(self, which: str) -> Any:
        place = self._components.get(which, "")
        module, _, attribute = place.partition(":")
        if not module or not attribute:
            raise UserModuleError(f"{self.folder}/pyproject.toml: tool.flwr.app.components has no {which}")
        path = str(self.folder.resolve())
        if path not in sys.path:
            sys.path.insert(0, path)
        try:
            return attrgetter(attribute)(import_module(module))
        except DagAcflError:
            raise
        except ModuleNotFoundError as error:
            raise UserModuleError(
                f"{self.folder}: {error}; install the app's dependencies, which its pyproject.toml names"
            ) from error
        except Exception as error:
            raise UserModuleError(f"{self.folder}: {place} cannot be imported: {told(error)}") from error


def _read(text: str, option: str) -> dict[str, Any]:
    try:
        found = parse_config_args([text])
    except (ClickException, ValueError) as error:
        said = error.message if isinstance(error, ClickException) else str(error)
        raise ParameterError(f"{option} {text!r}: {said}") from error
    if text.strip() and not found:
        raise ParameterError(f'{option} {text!r} must be key=value pairs, such as "partition-id=0 num-partitions=8"')
    return dict(found)

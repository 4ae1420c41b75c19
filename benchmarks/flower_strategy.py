"""The Flower strategy against FedAvg in Flower's own simulation: clients of two kinds whose labels contradict.

Digits; to clients of odd number a digit d is labelled 9 - d, so that no one model can serve both kinds. Accuracy is the
clients' mean, each on its own test data by what it is sent after the last round. Writes
``benchmarks/results/flower_strategy.json``. Flower's own packages are needed beside the project's:

    pip install 'flwr[simulation]'
    python benchmarks/flower_strategy.py
"""

import os
import time
from typing import Any

import harness

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

from dag_acfl.flower import DagAcfl
from fl_simulator.data.rotated import rotated_digits

client_app = ClientApp()


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))


def prepared(msg: Message, context: Context) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """The model that came, and the client's data."""
    number, count = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    samples = 1797 // count
    train = samples * 5 // 8
    mine = rotated_digits(
        num_clients=count,
        rotations=(0,),
        train_per_client=train,
        test_per_client=samples - train,
        seed=int(msg.content["config"]["seed"]),
    )[number]
    data = {name: torch.tensor(getattr(mine, name)) for name in ("train_x", "train_y", "test_x", "test_y")}
    if number % 2:
        data |= {name: 9 - data[name] for name in ("train_y", "test_y")}
    model = net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    torch.manual_seed(int(msg.content["config"]["seed"]) * 1000 + number)
    return model, {name: each.flatten(1) if each.dim() > 2 else each for name, each in data.items()}


@client_app.train()  # type: ignore[untyped-decorator]
def train(msg: Message, context: Context) -> Message:
    model, data = prepared(msg, context)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        for batch in torch.split(torch.randperm(len(data["train_x"])), 16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data["train_x"][batch]), data["train_y"][batch]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(data["train_x"])})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


@client_app.evaluate()  # type: ignore[untyped-decorator]
def evaluate(msg: Message, context: Context) -> Message:
    model, data = prepared(msg, context)
    with torch.no_grad():
        accuracy = (model(data["test_x"]).argmax(1) == data["test_y"]).float().mean().item()
    kind = int(context.node_config["partition-id"]) % 2
    metrics = MetricRecord({"accuracy": accuracy, "kind": kind, "num-examples": len(data["test_x"])})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)


def simulated(strategy: FedAvg, *, clients: int, rounds: int, seed: int) -> tuple[float, float]:
    """The clients' mean accuracy after the last round, and seconds from the first message on."""
    found: dict[str, Any] = {}
    server_app = ServerApp()

    @server_app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        del context
        torch.manual_seed(seed)
        config = {"seed": seed}
        started = time.monotonic()
        result = strategy.start(
            grid,
            ArrayRecord(net().state_dict()),
            num_rounds=rounds,
            train_config=ConfigRecord(config),
            evaluate_config=ConfigRecord(config),
        )
        found["seconds"] = time.monotonic() - started
        found["accuracy"] = result.evaluate_metrics_clientapp[rounds]["accuracy"]

    backend = {"init_args": {"include_dashboard": False}, "client_resources": {"num_cpus": 1}}
    run_simulation(server_app, client_app, clients, backend_config=backend)
    return float(found["accuracy"]), float(found["seconds"])


def main() -> None:
    parser = harness.arguments(__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    result = harness.Result("flower_strategy", "FedAvg and DagAcfl in Flower's own simulation", options.date)
    result.facts = {"clients": options.clients, "rounds": options.rounds, "runs": []}
    spent: dict[str, list[float]] = {"FedAvg": [], "DagAcfl": []}
    for seed in range(options.seeds):
        for name, strategy in {"FedAvg": FedAvg, "DagAcfl": DagAcfl}.items():
            used = strategy(min_available_nodes=options.clients)
            accuracy, seconds = simulated(used, clients=options.clients, rounds=options.rounds, seed=seed)
            run = {"strategy": name, "seed": seed, "accuracy": round(accuracy, 4), "seconds": round(seconds, 2)}
            if isinstance(used, DagAcfl):
                kinds = {node: figures["kind"] for node, figures in used.node_metrics.items()}
                run["clusters"] = [sorted(kinds[node] for node in group) for group in used.clusters()]
            print(run, flush=True)
            result.facts["runs"].append(run)
            spent[name].append(seconds)
    result.timings = {f"whole run, {name}": harness.Timing(tuple(all_s)) for name, all_s in spent.items()}
    result.write()


if __name__ == "__main__":
    main()

"""FedAvg without initial parameters: a client is asked for them."""

from flwr.common import Context
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg


def fit_config(server_round: int):
    return {"server_round": server_round, "lr": 0.1}


def server_fn(context: Context):
    strategy = FedAvg(
        fraction_fit=context.run_config["fraction-fit"], min_available_clients=20, on_fit_config_fn=fit_config
    )
    config = ServerConfig(num_rounds=context.run_config["num-server-rounds"])
    return ServerAppComponents(strategy=strategy, config=config)


app = ServerApp(server_fn=server_fn)

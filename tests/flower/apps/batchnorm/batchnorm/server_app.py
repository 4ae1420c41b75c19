"""FedAvg over the arrays of a torch state_dict."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from batchnorm.task import Net

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = FedAvg(fraction_train=context.run_config["fraction-train"], min_available_nodes=40)
    result = strategy.start(
        grid=grid,
        initial_arrays=ArrayRecord(Net().state_dict()),
        train_config=ConfigRecord({"lr": context.run_config["optimiser.lr"]}),
        num_rounds=context.run_config["num-server-rounds"],
    )
    torch.save(result.arrays.to_torch_state_dict(), "final_model.pt")

"""FedAvg in a wrapper that adds noise; its arrays are float64, and called model."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAvg

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    strategy = DifferentialPrivacyClientSideFixedClipping(
        FedAvg(arrayrecord_key="model"),
        noise_multiplier=0.1,
        clipping_norm=context.run_config["clipping-norm"],
        num_sampled_clients=2,
    )
    strategy.start(
        grid=grid,
        # The weight before the bias: an order that is not the alphabet's.
        initial_arrays=ArrayRecord({"weight": Array(np.zeros((64, 10))), "bias": Array(np.zeros(10))}),
        num_rounds=context.run_config["num-server-rounds"],
    )

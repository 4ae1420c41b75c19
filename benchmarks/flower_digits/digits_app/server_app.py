"""FedAvg; prints the accuracy of each round and the seconds of all."""

import time

from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits_app.task import net

app = ServerApp()


@app.main()  # type: ignore[untyped-decorator]
def main(grid: Grid, context: Context) -> None:
    started = time.monotonic()
    result = FedAvg().start(
        grid=grid,
        initial_arrays=ArrayRecord(net().state_dict()),
        train_config=ConfigRecord({name: context.run_config[name] for name in ("lr", "local-epochs")}),
        num_rounds=context.run_config["num-server-rounds"],
    )
    accuracies = [round(each["accuracy"], 4) for each in result.evaluate_metrics_clientapp.values()]
    print("seconds", round(time.monotonic() - started, 1), "accuracies", accuracies, flush=True)

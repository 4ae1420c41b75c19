"""Its update is clipped to the norm that the ServerApp sends; counts its trainings in ``Context.state``."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod

from private.task import load_data, probabilities
from private.task import train as train_fn

app = ClientApp()


@app.train(mods=[fixedclipping_mod])
def train(msg: Message, context: Context):
    weight, bias = (array.numpy() for array in msg.content["model"].values())
    mine = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    epochs, lr = context.run_config["local-epochs"], context.run_config["lr"]
    weight, bias = train_fn(weight, bias, mine.train_x, mine.train_y, epochs, lr)
    arrays = ArrayRecord({"weight": Array(weight), "bias": Array(bias)})

    before = context.state["history"]["trainings"] if "history" in context.state else 0
    context.state["history"] = MetricRecord({"trainings": before + 1})

    metrics = MetricRecord({"num-examples": len(mine.train_y), "trainings": before + 1})
    return Message(RecordDict({"model": arrays, "metrics": metrics}), reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    weight, bias = (array.numpy() for array in msg.content["model"].values())
    mine = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    right = np.argmax(probabilities(weight, bias, mine.test_x), axis=1) == mine.test_y
    metrics = MetricRecord({"top-1": float(right.mean()), "num-examples": len(mine.test_y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=msg)

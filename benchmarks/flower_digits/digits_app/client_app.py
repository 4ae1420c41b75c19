"""Trains and evaluates."""

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn

from digits_app.task import load_data, net

app = ClientApp()


@app.train()  # type: ignore[untyped-decorator]
def train(msg: Message, context: Context) -> Message:
    model = net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    images, labels, _, _ = load_data(context.node_config["partition-id"])
    optimizer = torch.optim.SGD(model.parameters(), lr=msg.content["config"]["lr"])
    for _ in range(msg.content["config"]["local-epochs"]):
        for batch in torch.randperm(len(images)).split(16):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            optimizer.step()
    metrics = MetricRecord({"num-examples": len(images)})
    return Message(content=RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=msg)


@app.evaluate()  # type: ignore[untyped-decorator]
def evaluate(msg: Message, context: Context) -> Message:
    model = net()
    model.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, _, images, labels = load_data(context.node_config["partition-id"])
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    metrics = MetricRecord({"accuracy": accuracy, "num-examples": len(images)})
    return Message(content=RecordDict({"metrics": metrics}), reply_to=msg)

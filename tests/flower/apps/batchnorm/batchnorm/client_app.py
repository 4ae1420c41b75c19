"""Trains and evaluates; counts its trainings in ``Context.state``."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from batchnorm.task import Net, load_data
from batchnorm.task import test as test_fn
from batchnorm.task import train as train_fn

app = ClientApp()


@app.train()
def train(msg: Message, context: Context):
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    trainloader, _ = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss = train_fn(net, trainloader, context.run_config["local-epochs"], msg.content["config"]["lr"])

    before = context.state["history"]["trainings"] if "history" in context.state else 0
    context.state["history"] = MetricRecord({"trainings": before + 1})

    metrics = {"train_loss": loss, "num-examples": len(trainloader.dataset), "trainings": before + 1}
    content = RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": MetricRecord(metrics)})
    return Message(content=content, reply_to=msg)


@app.evaluate()
def evaluate(msg: Message, context: Context):
    net = Net()
    net.load_state_dict(msg.content["arrays"].to_torch_state_dict())
    _, testloader = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    loss, accuracy = test_fn(net, testloader)
    metrics = {"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(testloader.dataset)}
    return Message(content=RecordDict({"metrics": MetricRecord(metrics)}), reply_to=msg)

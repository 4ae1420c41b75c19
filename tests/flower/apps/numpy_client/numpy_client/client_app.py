"""A NumPyClient, and the function that makes one."""

from flwr.client import ClientApp, NumPyClient
from flwr.common import Context

from numpy_client.task import Net, get_weights, load_data, set_weights, test, train


class FlowerClient(NumPyClient):
    def __init__(self, net, data, local_epochs):
        self.net, self.local_epochs = net, local_epochs
        self.batches, self.test_data = data

    def get_parameters(self, config):
        return get_weights(self.net)

    def fit(self, parameters, config):
        set_weights(self.net, parameters)
        loss = train(self.net, self.batches, self.local_epochs, config["lr"])
        examples = sum(len(labels) for _, labels in self.batches)
        return get_weights(self.net), examples, {"train_loss": loss, "round": config["server_round"]}

    def evaluate(self, parameters, config):
        set_weights(self.net, parameters)
        loss, accuracy = test(self.net, *self.test_data)
        return loss, len(self.test_data[1]), {"accuracy": accuracy}


def client_fn(context: Context):
    data = load_data(context.node_config["partition-id"], context.node_config["num-partitions"])
    return FlowerClient(Net(), data, context.run_config["local-epochs"]).to_client()


app = ClientApp(client_fn)

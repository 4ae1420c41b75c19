"""A Hugging Face model and its ``Trainer``: ``dag-acfl try transformers_client.py --sites 4``."""

import numpy as np
from transformers import PreTrainedModel, PrinterCallback, TrainingArguments, ViTConfig, ViTForImageClassification
from transformers import Trainer as HuggingFaceTrainer

from fl_client.training import LoopTrainer, Trainer
from fl_simulator.data.rotated import rotated_digits

SIZE = ViTConfig(image_size=8, patch_size=4, num_channels=1, num_labels=10, hidden_size=32, intermediate_size=32,
                 num_hidden_layers=1, num_attention_heads=4, initializer_range=0.1)  # fmt: skip


def trainer(site: int = 0) -> Trainer:
    data = rotated_digits(rotations=(0, 90), train_per_client=60)[site]  # yours
    train, test = (
        [{"pixel_values": image[None], "labels": label} for image, label in zip(images, labels, strict=True)]
        for images, labels in ((data.train_x, data.train_y), (data.test_x, data.test_y))
    )

    def theirs(model: PreTrainedModel, epochs: int = 1) -> HuggingFaceTrainer:  # as it was
        how = TrainingArguments(num_train_epochs=epochs, learning_rate=2e-3, per_device_train_batch_size=10,
                                save_strategy="no", report_to="none", disable_tqdm=True,
                                dataloader_pin_memory=False)  # fmt: skip
        made = HuggingFaceTrainer(model, how, train_dataset=train, eval_dataset=test, compute_metrics=lambda found: {
            "accuracy": np.mean(found.predictions.argmax(1) == found.label_ids)})  # fmt: skip
        made.remove_callback(PrinterCallback)
        return made

    def fit(model: PreTrainedModel, epochs: int) -> None:
        theirs(model, epochs).train()

    def measure(model: PreTrainedModel) -> dict[str, float]:
        found = theirs(model).evaluate()
        return {name: found[f"eval_{name}"] for name in ("accuracy", "loss")}

    return LoopTrainer(ViTForImageClassification(SIZE), fit, measure, num_examples=len(train), seed=site)

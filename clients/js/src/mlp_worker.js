import { Mlp } from "./perceptron.js";
import { serveTrainer } from "./worker.js";

serveTrainer((options) => new Mlp(options));

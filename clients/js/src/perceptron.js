/** @typedef {import("./model.js").Arrays} Arrays */
/** @typedef {import("./participant.js").Trainer} Trainer */

/**
 * Layers of weights with ReLU between them, cross-entropy behind them, and stochastic gradient descent. `mlp` runs it in a
 * worker.
 *
 * @implements {Trainer}
 */
export class Mlp {
  /** @param {import("./mlp.js").MlpOptions} options */
  constructor({
    layers,
    trainX,
    trainY,
    testX = new Float32Array(),
    testY = new Uint8Array(),
    batchSize = 10,
    learningRate = 0.1,
    seed = 0,
  }) {
    if (trainX.length !== trainY.length * layers[0] || testX.length !== testY.length * layers[0])
      throw new Error(
        `a sample has ${layers[0]} values: ${trainX.length} values and ${trainY.length} classes do not fit`,
      );
    this.layers = layers;
    this.train_ = { x: trainX, y: trainY };
    this.test = { x: testX, y: testY };
    this.batchSize = batchSize;
    this.learningRate = learningRate;
    this.random = randomNumbers(seed);
    this.initial = this.draw();
  }

  /** @returns {import("./model.js").Tensor[]} */
  layout() {
    return this.layers.slice(1).flatMap((units, at) => [
      { name: `fc${at + 1}.weight`, dtype: /** @type {const} */ ("F32"), shape: [units, this.layers[at]] },
      { name: `fc${at + 1}.bias`, dtype: /** @type {const} */ ("F32"), shape: [units] },
    ]);
  }

  /** Uniform within 1 / √inputs, as PyTorch draws them. */
  draw() {
    return Object.fromEntries(
      this.layout().map(({ name, shape }, at) => {
        const bound = 1 / Math.sqrt(this.layers[at >> 1]);
        const size = shape.reduce((product, side) => product * side, 1);
        return [name, Float32Array.from({ length: size }, () => (2 * this.random() - 1) * bound)];
      }),
    );
  }

  initialArrays() {
    return this.initial;
  }

  buffers() {
    return [];
  }

  /**
   * @param {Arrays} arrays Stay as they are.
   * @param {{epochs: number, hints?: Record<string, any>}} how
   */
  train(arrays, { epochs, hints = {} }) {
    const { batch_size: batchSize = this.batchSize, learning_rate: rate = this.learningRate } = hints;
    if (!(Number.isInteger(batchSize) && batchSize >= 1 && rate > 0))
      throw new Error(`batch_size ${batchSize} must be a whole number of at least 1, learning_rate ${rate} positive`);
    const model = Object.fromEntries(Object.entries(arrays).map(([name, values]) => [name, values.slice()]));
    const order = Array.from(this.train_.y, (_, at) => at);
    let loss = 0;
    for (let epoch = 0; epoch < epochs; epoch++) {
      for (let at = order.length - 1; at > 0; at--) {
        const other = Math.floor(this.random() * (at + 1));
        [order[at], order[other]] = [order[other], order[at]];
      }
      loss = 0;
      for (let from = 0; from < order.length; from += batchSize) {
        const batch = order.slice(from, from + batchSize);
        const gradient = this.gradient(model, this.train_, batch);
        loss += (gradient.loss * batch.length) / order.length;
        for (const name in model) {
          const [values, slopes] = [model[name], gradient.arrays[name]];
          for (let i = 0; i < values.length; i++) values[i] -= rate * slopes[i];
        }
      }
    }
    return { arrays: model, numExamples: order.length, metrics: { loss } };
  }

  /** Accuracy and loss on the test data. @param {Arrays} arrays @returns {Record<string, number>} */
  evaluate(arrays) {
    const { x, y } = this.test;
    if (!y.length) return {};
    let hits = 0,
      loss = 0;
    for (let sample = 0; sample < y.length; sample++) {
      const shares = softmax(/** @type {Float32Array} */ (this.forward(arrays, x, sample).at(-1)));
      if (shares.indexOf(Math.max(...shares)) === y[sample]) hits++;
      loss -= Math.log(Math.max(shares[y[sample]], 1e-38));
    }
    return { accuracy: hits / y.length, loss: loss / y.length, num_examples: y.length };
  }

  /** What each layer puts out, the sample first. @param {Arrays} model @param {Float32Array} x @param {number} sample */
  forward(model, x, sample) {
    const outputs = [x.subarray(sample * this.layers[0], (sample + 1) * this.layers[0])];
    for (let layer = 1; layer < this.layers.length; layer++) {
      const [weight, bias] = [model[`fc${layer}.weight`], model[`fc${layer}.bias`]];
      const input = outputs[layer - 1],
        last = layer === this.layers.length - 1;
      const output = bias.slice();
      for (let unit = 0, at = 0; unit < output.length; unit++) {
        let sum = output[unit];
        for (let i = 0; i < input.length; i++) sum += weight[at++] * input[i];
        output[unit] = last || sum > 0 ? sum : 0;
      }
      outputs.push(output);
    }
    return outputs;
  }

  /**
   * Mean loss of a batch, and its gradient, by back-propagation.
   *
   * @param {Arrays} model
   * @param {{x: Float32Array, y: Uint8Array}} data
   * @param {number[]} batch Places of samples.
   */
  gradient(model, { x, y }, batch) {
    const arrays = Object.fromEntries(
      Object.entries(model).map(([name, values]) => [name, new Float32Array(values.length)]),
    );
    let loss = 0;
    for (const sample of batch) {
      const outputs = this.forward(model, x, sample);
      let slopes = softmax(/** @type {Float32Array} */ (outputs.at(-1)));
      loss -= Math.log(Math.max(slopes[y[sample]], 1e-38)) / batch.length;
      slopes[y[sample]] -= 1;
      for (let layer = this.layers.length - 1; layer > 0; layer--) {
        const input = outputs[layer - 1],
          weight = model[`fc${layer}.weight`];
        const [toWeight, toBias] = [arrays[`fc${layer}.weight`], arrays[`fc${layer}.bias`]];
        const before = new Float32Array(input.length);
        for (let unit = 0, at = 0; unit < slopes.length; unit++) {
          const slope = slopes[unit];
          toBias[unit] += slope / batch.length;
          for (let i = 0; i < input.length; i++, at++) {
            toWeight[at] += (slope * input[i]) / batch.length;
            if (input[i] > 0) before[i] += slope * weight[at]; // below 0 ReLU is flat
          }
        }
        slopes = before;
      }
    }
    return { loss, arrays };
  }
}

/** @param {Float32Array} logits */
function softmax(logits) {
  const highest = Math.max(...logits);
  const shares = logits.map((value) => Math.exp(value - highest));
  const sum = shares.reduce((total, value) => total + value, 0);
  return shares.map((value) => value / sum);
}

/** Numbers in [0, 1), the same for the same seed: a Weyl sequence through MurmurHash3's finaliser. @param {number} seed */
function randomNumbers(seed) {
  let state = seed | 0;
  return () => {
    let z = (state = (state + 0x9e3779b9) | 0);
    z = Math.imul(z ^ (z >>> 16), 0x85ebca6b);
    z = Math.imul(z ^ (z >>> 13), 0xc2b2ae35);
    return ((z ^ (z >>> 16)) >>> 0) / 2 ** 32;
  };
}

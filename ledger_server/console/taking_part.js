/**
 * This browser as a client of the ledger: what it trains on, and its steps.
 *
 * Its key and models are in an IndexedDB database of this browser, one for each ledger; what was drawn is beside it, in
 * localStorage. Neither is sent anywhere: what is published is the trained model, and figures of it.
 */
import { token } from "./api.js";
import { DagAcflError } from "./client/errors.js";
import { mlp } from "./client/mlp.js";
import { decodeModel } from "./client/model.js";
import { Participant } from "./client/participant.js";
import { Mlp } from "./client/perceptron.js";
import { indexedDb } from "./client/storage.js";
import { CLASSES, SIDE, TEST, trainingDigits } from "./digits.js";
import { turned } from "./drawing.js";

/** @typedef {import("./client/participant.js").StepReport} StepReport */
/** @typedef {import("./client/model.js").Arrays} Arrays */
/** @typedef {import("./digits.js").Digit} Digit */
/** @typedef {{at: number, report: StepReport}} Step */

const PIXELS = SIDE * SIDE;
const [BATCH_SIZE, LEARNING_RATE] = [10, 0.2]; // the demo's clients'
const EVERY_MS = 2000;
const TIMEOUT_MS = 60_000;
const MOST_DRAWN = 500;

/**
 * The layers of a perceptron that reads these digits, if the ledger's model is one.
 *
 * @param {{name: string, shape: number[], role?: string}[]} layout As genesis has it.
 * @returns {number[] | null} Such as [64, 32, 10].
 */
export function layersOf(layout) {
  const shapes = new Map(layout.map(({ name, shape }) => [name, shape]));
  const layers = [PIXELS];
  for (let at = 1; shapes.has(`fc${at}.weight`); at++) layers.push(shapes.get(`fc${at}.weight`)?.[0] ?? 0);
  const wanted = new Mlp({ layers: layers.length > 1 ? layers : [PIXELS, CLASSES], trainX: new Float32Array(), trainY: new Uint8Array() }).layout();
  const said = (/** @type {{name: string, shape: number[]}[]} */ tensors) => tensors.map(({ name, shape }) => `${name} ${shape}`).sort().join();
  return layers.at(-1) === CLASSES && said(wanted) === said(layout) && !layout.some(({ role }) => role === "local") ? layers : null;
}

export class TakingPart {
  /** @type {Participant | null} */
  participant = null;
  /** @type {{given?: Arrays, trained?: Arrays}} What came back, and what this browser made of it. */
  models = {};
  /** @type {Step[]} Of this visit. */
  steps = [];
  /** What it is at; nothing where it waits for the person. */
  doing = "";
  problem = "";
  isGoingOn = false;
  /** How often the newest model read a drawing rightly before it was trained on it. */
  read = { right: 0, of: 0 };

  /** @param {string} ledger @param {number[]} layers @param {() => void} changed Called when there is something else to show. */
  constructor(ledger, layers, changed) {
    this.changed = changed;
    this.database = `dag-acfl-take-part-${ledger.slice(0, 16)}`;
    this.ledger = ledger;
    this.layers = layers;
    this.reader = new Mlp({ layers, trainX: new Float32Array(), trainY: new Uint8Array() });
    /** @type {{seed: number, degrees: number, drawn: string[], hasKey: boolean}} `drawn`: a label, and pixels in sixteenths to the base of 17. */
    this.kept = { seed: Math.floor(Math.random() * 720), degrees: 0, drawn: [], hasKey: false, ...parsed(localStorage.getItem(this.database)) };
    /** @type {ReturnType<typeof mlp> | null} */
    this.worker = null;
    /** Whether the worker has the digits as they were; it may be at work, so it is replaced when it is asked next. */
    this.isStale = false;
    if (this.kept.hasKey) void this.open().catch((error) => this.fail(error));
  }

  keep() {
    localStorage.setItem(this.database, JSON.stringify(this.kept));
    this.isStale = true;
    this.changed();
  }

  /** @returns {Digit[]} What it trains on, upright: drawn ones last. */
  get digits() {
    const drawn = this.kept.drawn.map((each) => ({ label: Number(each[0]), pixels: Float32Array.from(each.slice(1), (pixel) => parseInt(pixel, 17) / 16) }));
    return [...trainingDigits(this.kept.seed), ...drawn];
  }

  /** @param {number} degrees How far its camera turns what it sees, counter-clockwise. */
  turn(degrees) {
    this.kept.degrees = degrees;
    this.keep();
  }

  /** Take a drawing into what is trained on; before, see whether the newest model reads it. @param {Digit} digit */
  add({ label, pixels }) {
    const said = this.reads(pixels).trained;
    if (said) this.read = { right: this.read.right + Number(said.indexOf(Math.max(...said)) === label), of: this.read.of + 1 };
    this.kept.drawn = [...this.kept.drawn, label + Array.from(pixels, (each) => Math.round(each * 16).toString(17)).join("")].slice(-MOST_DRAWN);
    this.keep();
  }

  /** @param {number} place Among the drawn ones. */
  drop(place) {
    this.kept.drawn.splice(place, 1);
    this.keep();
  }

  /**
   * How sure both models are that a digit is 0, 1, …
   *
   * @param {Float32Array} pixels Upright.
   * @returns {{given?: number[], trained?: number[]}}
   */
  reads(pixels) {
    const seen = turned(pixels, this.kept.degrees);
    const shares = (/** @type {Arrays | undefined} */ model) => {
      if (!model) return undefined;
      const values = [...(this.reader.forward(model, seen, 0).at(-1) ?? [])].map((value) => Math.exp(Math.min(value, 80)));
      const sum = values.reduce((total, value) => total + value, 0);
      return values.map((value) => value / sum);
    };
    return { given: shares(this.models.given), trained: shares(this.models.trained) };
  }

  /** A worker that trains on the digits as they are now. */
  get trainer() {
    if (this.worker && !this.isStale) return this.worker;
    this.worker?.close();
    this.isStale = false;
    const seen = (/** @type {Digit[]} */ digits) => {
      const x = new Float32Array(digits.length * PIXELS);
      digits.forEach(({ pixels }, at) => x.set(turned(pixels, this.kept.degrees), at * PIXELS));
      return { x, y: Uint8Array.from(digits, ({ label }) => label) };
    };
    const [train, test] = [seen(this.digits), seen(TEST)];
    const options = { layers: this.layers, batchSize: BATCH_SIZE, learningRate: LEARNING_RATE, seed: Math.floor(Math.random() * 2 ** 31) };
    return (this.worker = mlp({ ...options, trainX: train.x, trainY: train.y, testX: test.x, testY: test.y }));
  }

  /** Go on as the client that this browser was, or become one. */
  async open() {
    if (this.participant) return this.participant;
    /** @type {(doing: string) => void} */
    const at = (doing) => {
      this.doing = doing;
      this.changed();
    };
    const participant = await Participant.open(location.origin, {
      ledger: this.ledger,
      storage: await indexedDb(this.database),
      token: token.get() || undefined,
      timeoutMs: TIMEOUT_MS,
      trainer: {
        layout: () => this.reader.layout(),
        initialArrays: () => this.reader.initialArrays(),
        buffers: () => [],
        train: (arrays, how) => (at("training"), this.trainer.train(arrays, how)),
        evaluate: (arrays) => (at("testing"), this.trainer.evaluate(arrays)),
      },
    });
    this.author = await participant.client.author();
    this.participant = participant;
    if (!this.kept.hasKey) {
      this.kept.hasKey = true;
      this.keep();
    }
    await this.look(participant);
    return participant;
  }

  /** Take the models of the newest step. @param {Participant} participant */
  async look(participant) {
    const { model } = participant.position;
    if (!model) return;
    const { layout } = await participant.client.genesis();
    this.models = { given: await participant.given(), trained: decodeModel(layout, await participant.model(model)) };
    this.changed();
  }

  /** One step, and further ones while it is to go on. @param {boolean} isGoingOn */
  async train(isGoingOn) {
    this.isGoingOn = isGoingOn;
    if (this.doing) return;
    do {
      this.doing = "asking whose models resemble yours";
      this.changed();
      try {
        const participant = await this.open();
        const report = await participant.step();
        this.steps = [...this.steps, { at: Date.now(), report }];
        await this.look(participant);
        this.problem = "";
      } catch (error) {
        this.fail(/** @type {Error} */ (error));
        if (!(error instanceof DagAcflError && error.code === "server-unavailable")) this.isGoingOn = false;
      }
      this.doing = this.isGoingOn ? "resting for two seconds" : "";
      this.changed();
      if (this.isGoingOn) await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    } while (this.isGoingOn);
    this.doing = "";
    this.changed();
  }

  /** @param {Error} error */
  fail(error) {
    this.problem = error.message;
    if (error instanceof DagAcflError && error.code === "state-locked") this.participant = null; // read again what the other has written
    this.changed();
  }

  /** Forget the key, the models and what was drawn: this client publishes no more. */
  async leave() {
    this.isGoingOn = false;
    const storage = await indexedDb(this.database);
    for (const name of await storage.names()) await storage.remove(name);
    [this.participant, this.author, this.models, this.steps, this.problem, this.read] = [null, undefined, {}, [], "", { right: 0, of: 0 }];
    this.kept = { ...this.kept, drawn: [], hasKey: false };
    this.keep();
  }
}

/** @param {string | null} text */
function parsed(text) {
  try {
    return JSON.parse(text ?? "{}");
  } catch {
    return {};
  }
}

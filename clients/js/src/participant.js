/**
 * A client of one ledger: select, average, train, publish, again and again; killed at any moment it loses nothing.
 *
 * It keeps `model-DIGEST` (its newest model, what that one's training began from, and the one under way) and `position`,
 * the one point of truth, which also has its key. A publication is written down with its exact header and model
 * before it is sent: who was killed before the answer came sends the same bytes again, which are the same transaction.
 */
import { parsed, utf8 } from "./bytes.js";
import { LedgerClient, pause } from "./client.js";
import { digestOf, random } from "./crypto.js";
import { check, DagAcflError } from "./errors.js";
import { encodeHeader, transactionId } from "./header.js";
import { decodeModel, encodeModel } from "./model.js";

/** @typedef {import("./model.js").Arrays} Arrays */
/** @typedef {import("./model.js").Tensor} Tensor */
/** @typedef {import("./header.js").Header} Header */
/** @typedef {import("./client.js").Json} Json */
/** @typedef {import("./storage.js").Storage} Storage */
/** @template T @typedef {T | Promise<T>} Maybe */
/** @typedef {{arrays: Arrays, numExamples: number, metrics?: Record<string, number>}} TrainingResult */

/**
 * Trains one site's model on that site's data: the five calls of Python's `fl_client.training.Trainer`.
 *
 * @typedef {object} Trainer
 * @property {() => Maybe<Tensor[]>} layout The model's tensors; those of the ledger.
 * @property {() => Maybe<Arrays>} initialArrays What a ledger can be founded with.
 * @property {() => Maybe<string[]>} buffers Tensors that travel and are not trained, such as running statistics.
 * @property {(arrays: Arrays, how: {epochs: number, hints: Json}) => Maybe<TrainingResult>} train
 * @property {(arrays: Arrays) => Maybe<Record<string, number>>} evaluate On the own test data; `{}` without any.
 */

/**
 * @typedef {object} StepReport
 * @property {string} transaction
 * @property {number} sequence Its number among this author's, from 0.
 * @property {boolean} created False when the server had it already.
 * @property {boolean} resumed It only ended a publication of an earlier run, whose measurements are gone.
 * @property {string} [source] `parents`: training began from their average; `own`: from the own model.
 * @property {number} [numCandidates] Models of others that were compared with the own one.
 * @property {number} [numChosen] How many of them are in the average.
 * @property {Record<string, number>} [before] What `evaluate` measured of the average.
 * @property {Record<string, number>} [after] And of the trained model.
 */

/**
 * @typedef {object} Position
 * @property {string} format
 * @property {string} key The Ed25519 seed.
 * @property {string} [ledger] From the first publication on.
 * @property {number} sequence The number that the next transaction gets.
 * @property {string} [transaction] The newest one.
 * @property {string} [model] Digest of its model.
 * @property {string} [given] Digest of what its training began from.
 * @property {Header} [pending] A publication whose outcome is not known.
 */

const FORMAT = "dag-acfl/participant-js/v1";
const MAX_TRIES = 5;
/** Refusals after which another selection helps. */
const STALE = /^(selection|transaction|model)-unknown|^model-pruned|^parents-(stale|unknown)/;
/** Refusals of the publication itself; whatever else goes wrong, it stays written down. */
const REFUSED = /^(model|step|parents|transaction|selection|sequence|signature|header)-/;

/** Names of what is kept, and of halves that a kill left: the folder may have files of others, too. */
const OURS = /^(position|model-\w{64})(\.\d+\.half)?$/;
/** @param {string} digest */
const nameOf = (digest) => `model-${digest}`;

export class Participant {
  /**
   * Go on where the storage says, or begin.
   *
   * @param {string} server As for `LedgerClient`.
   * @param {object} options `ledger`, `token` and `timeoutMs` as for `LedgerClient`.
   * @param {Trainer} options.trainer
   * @param {Storage} options.storage
   * @param {number} [options.epochs] E; else the ledger's hint `epochs`, else 3.
   * @param {number} [options.initialEpochs] E′; else the hint `initial_epochs`, else E.
   * @param {string} [options.ledger]
   * @param {string} [options.token]
   * @param {number} [options.timeoutMs]
   */
  static async open(server, { storage, ...options }) {
    let written = await storage.read("position");
    if (!written)
      await storage.write(
        "position",
        (written = utf8(JSON.stringify({ format: FORMAT, key: random(), sequence: 0 }))),
        null,
      );
    const position = /** @type {Position} */ (parsed(written));
    sound(position?.format === FORMAT, "position");
    const { key, ledger = options.ledger } = position;
    const client = new LedgerClient(server, { ...options, key, ledger });
    return new Participant(client, storage, options, position, written);
  }

  /**
   * @private
   * @param {LedgerClient} client
   * @param {Storage} storage
   * @param {{trainer: Trainer, epochs?: number, initialEpochs?: number}} options
   * @param {Position} position
   * @param {Uint8Array} written The position as it stands in the storage.
   */
  constructor(client, storage, options, position, written) {
    this.client = client;
    this.storage = storage;
    this.options = options;
    this.position = position;
    this.written = written;
  }

  /**
   * Take steps until there were enough, or the signal says so; the step at hand is ended. Who would go on alone asks again
   * first, for as long as the step before took, at most 5 s: of two alike the quicker would never meet the other.
   *
   * @param {number} [steps]
   * @param {{signal?: AbortSignal, everyMs?: number, onStep?: (report: StepReport) => unknown}} [options]
   */
  async run(steps = Infinity, { signal, everyMs = 0, onStep } = {}) {
    let askAgainMs = 0;
    for (let taken = 0; taken < steps && !signal?.aborted; taken++) {
      if (taken) await pause(everyMs, signal);
      const begun = Date.now();
      const report = await this.step(askAgainMs);
      await onStep?.(report);
      askAgainMs = report.resumed ? 0 : Math.min(Date.now() - begun, 5000);
    }
  }

  /**
   * One round; or, where an earlier run was cut off while publishing, the end of that one.
   *
   * @param {number} [askAgainMs] How long to ask again where there is nobody to average with.
   * @returns {Promise<StepReport>}
   */
  async step(askAgainMs = 0) {
    const { trainer, epochs: E, initialEpochs } = this.options;
    const { ledger, layout, model: first, document } = await this.client.genesis();
    const { pending, model: own, sequence } = this.position;
    const shapes = (/** @type {Tensor[]} */ tensors) =>
      tensors
        .map(({ name, shape }) => `${name} [${shape}]`)
        .sort()
        .join(", ");
    const [here, there] = [shapes(await trainer.layout()), shapes(layout.tensors)];
    check(here === there, `the trainer's model is not the ledger's: ${here}; ${there}`, "model-layout");
    if (pending) return { ...(await this.publish(pending, await this.model(pending.model_digest))), resumed: true };

    const { training: hints, bounds } = document;
    const decode = (/** @type {Uint8Array} */ model) => decodeModel(layout, model, bounds.max_abs_value);
    const train = async (/** @type {Uint8Array} */ from, /** @type {number} */ epochs) => {
      const trained = await trainer.train(decode(from), { epochs, hints });
      const model = encodeModel(layout, trained.arrays);
      return { ...trained, model, arrays: decode(model) }; // decoding sees to it that no NaN is sent
    };
    const epochs = E ?? number(hints.epochs, 3);

    let shown, selection, given;
    for (let tries = 1; !given; tries++) {
      selection = shown ? undefined : await this.selectByHash(askAgainMs);
      if (!selection) {
        shown ??= own
          ? await this.model(own)
          : (await train(await this.client.download(first), initialEpochs ?? number(hints.initial_epochs, epochs)))
              .model;
        selection = await this.client.select(shown);
      }
      const { digest } = selection.aggregate;
      if (shown && (await digestOf(shown)) === digest) given = shown;
      else if (own === digest) given = await this.model(digest);
      // A server that was started again has forgotten the average, and makes it anew.
      else given = await this.client.download(digest).catch(unless(tries < MAX_TRIES && "model-unknown"));
    }
    const before = await trainer.evaluate(decode(given));
    const { model, arrays, numExamples, metrics = {} } = await train(given, epochs);
    const after = await trainer.evaluate(arrays);
    const { id, aggregate, parents, source, candidates, cut } = /** @type {Json} */ (selection);
    /** @type {Header} */
    const header = {
      ledger,
      kind: 1,
      author: await this.client.author(),
      sequence,
      created_at_ms: Date.now(),
      num_examples: numExamples,
      noise_std: 0,
      start: aggregate.digest,
      model_digest: await digestOf(model),
      model_size: model.length,
      attachment_digest: id,
      parents: [...parents].sort(),
      metrics: published(before, metrics),
      extensions: {},
    };
    await this.storage.write(nameOf(header.start), given);
    await this.storage.write(nameOf(header.model_digest), model);
    const report = await this.publish(header, model);
    return { ...report, source, numCandidates: candidates.length, numChosen: cut, before, after };
  }

  /** What the newest training began from, ω_agg: the model to use. @returns {Promise<Arrays | undefined>} */
  async given() {
    const { layout } = await this.client.genesis();
    return this.position.given ? decodeModel(layout, await this.model(this.position.given)) : undefined;
  }

  /** A selection by the own newest transaction; undefined where the server cannot use that. @param {number} [askAgainMs] */
  async selectByHash(askAgainMs = 0) {
    const transaction = this.position.transaction;
    if (!transaction) return undefined;
    for (let again = askAgainMs ? 4 : 0; ; again--) {
      const selection = await this.client.select(transaction).catch(unless("transaction-unknown", "model-pruned"));
      if (selection?.source !== "own" || !again) return selection;
      await pause(askAgainMs / 4);
    }
  }

  /** A model of the storage. @param {string} digest */
  async model(digest) {
    const model = await this.storage.read(nameOf(digest));
    sound(model && (await digestOf(model)) === digest, nameOf(digest));
    return /** @type {Uint8Array} */ (model);
  }

  /**
   * Write a publication down and send it until it is in the ledger.
   *
   * @param {Header} header
   * @param {Uint8Array} model
   * @returns {Promise<StepReport>}
   */
  async publish(header, model) {
    for (let tries = 1; ; tries++) {
      const transaction = await transactionId(encodeHeader(header)); // refuses what could never be sent
      await this.change({ pending: header, ledger: header.ledger });
      let created = false;
      try {
        ({ created } = await this.client.publish(header, model));
      } catch (error) {
        const refusal = /** @type {DagAcflError} */ (error);
        if (!refusal.status || !REFUSED.test(refusal.code)) throw error;
        // A server that has forgotten the selection refuses a transaction that it has, too.
        if (!(await this.client.transaction(transaction).catch(unless("transaction-unknown")))) {
          const corrected = tries < MAX_TRIES && (await this.corrected(header, model, refusal));
          if (!corrected) {
            await this.change({ pending: undefined });
            throw error;
          }
          header = corrected;
          continue;
        }
      }
      const { sequence, model_digest, start } = header;
      await this.change({ transaction, sequence: sequence + 1, model: model_digest, given: start, pending: undefined });
      const kept = ["position", nameOf(model_digest), nameOf(start)];
      for (const name of await this.storage.names())
        if (OURS.test(name) && !kept.includes(name)) await this.storage.remove(name);
      return { transaction, sequence, created, resumed: false };
    }
  }

  /**
   * Another header for the same model: its training is worth more than the selection that led to it.
   *
   * @param {Header} header
   * @param {Uint8Array} model
   * @param {DagAcflError} refusal
   * @returns {Promise<Header | undefined>} undefined where none would help.
   */
  async corrected(header, model, { code, problem }) {
    const next = problem.next_sequence;
    if (code === "sequence-conflict" && Number.isSafeInteger(next) && next > header.sequence)
      return { ...header, sequence: next };
    if (!STALE.test(code)) return undefined;
    const { id, parents } = (await this.selectByHash()) ?? (await this.client.select(model));
    return { ...header, parents: [...parents].sort(), attachment_digest: id };
  }

  /** @param {Partial<Position>} fields */
  async change(fields) {
    const position = /** @type {Position} */ ({ ...this.position, ...fields });
    const bytes = utf8(JSON.stringify(position));
    await this.storage.write("position", bytes, this.written);
    [this.position, this.written] = [position, bytes];
  }
}

/** Takes a fault under one of these codes for undefined, and throws any other. @param {...unknown} codes */
const unless =
  (...codes) =>
  (/** @type {any} */ error) => {
    if (!codes.includes(error.code)) throw error;
  };

/** @param {unknown} holds @param {string} name */
const sound = (holds, name) =>
  check(
    holds,
    `${name} is missing or damaged in the storage; restore it, or join anew with another storage`,
    "state-corrupt",
  );

/** A hint as a number of epochs; genesis may say nonsense. @param {any} hint @param {number} otherwise */
const number = (hint, otherwise) => (Number.isInteger(hint) && hint >= 1 ? hint : otherwise);

/**
 * What a transaction carries: `evaluate`'s figures, then `train`'s, 32 in all.
 *
 * @param {Record<string, number>} evaluated
 * @param {Record<string, number>} trained
 */
function published(evaluated, trained) {
  const beside = Object.entries(trained).map(
    ([name, value]) => /** @type {[string, number]} */ ([name in evaluated ? `train_${name}` : name, value]),
  );
  const figures = [...Object.entries(evaluated), ...beside].filter(
    ([name, value]) => Number.isFinite(value) && /^(?!num_examples$)[a-z0-9.-][a-z0-9_.-]{0,63}$/.test(name),
  );
  return Object.fromEntries(figures.slice(0, 32).map(([name, value]) => [name, value + 0])); // -0 is no figure
}

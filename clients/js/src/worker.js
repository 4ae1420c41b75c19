/**
 * A trainer in a worker, so that a page stays alive while it trains: `inWorker` on the page's side, `serveTrainer` in
 * the worker. Both work in browsers and in Node.
 */

/** @typedef {import("./participant.js").Trainer} Trainer */

const threads = "node:worker_threads"; // not written in the imports, so that bundlers for browsers leave them alone

/**
 * @param {URL} script A module that calls `serveTrainer`.
 * @param {unknown} options For its `make`; structured data.
 * @returns {Trainer & {close: () => void}}
 */
export function inWorker(script, options) {
  /** @type {Map<number, (answer: any) => void>} */
  const waiting = new Map();
  const fail = (/** @type {any} */ error) => {
    for (const answer of waiting.values()) answer({ error: String(error?.message ?? error) });
  };
  const started = start(script, ({ id, ...answer }) => waiting.get(id)?.(answer), fail).then((worker) => {
    worker.unref?.();
    worker.postMessage({ options });
    return worker;
  });
  let calls = 0;
  const call = async (/** @type {string} */ name, /** @type {unknown[]} */ ...args) => {
    const id = calls++;
    const worker = await started;
    worker.ref?.(); // Node's process lives as long as a call is under way, and no longer
    const answer = await new Promise((resolve) => {
      waiting.set(id, resolve);
      worker.postMessage({ id, name, args });
    });
    waiting.delete(id);
    if (!waiting.size) worker.unref?.();
    if (answer.error) throw new Error(answer.error);
    return answer.result;
  };
  return {
    layout: () => call("layout"),
    initialArrays: () => call("initialArrays"),
    buffers: () => call("buffers"),
    train: (arrays, how) => call("train", arrays, how),
    evaluate: (arrays) => call("evaluate", arrays),
    close: () => void started.then((worker) => worker.terminate()),
  };
}

/**
 * @param {URL} script
 * @param {(message: any) => void} heard
 * @param {(error: unknown) => void} failed
 * @returns {Promise<{postMessage: (message: unknown) => void, terminate: () => unknown, ref?: () => void, unref?: () => void}>}
 */
async function start(script, heard, failed) {
  if (globalThis.Worker) {
    const worker = new Worker(script, { type: "module" });
    worker.onmessage = ({ data }) => heard(data);
    worker.onerror = failed;
    return worker;
  }
  const worker = new (await import(threads)).Worker(script);
  worker.on("message", heard);
  worker.on("error", failed);
  return worker;
}

/**
 * Answer the page's calls, one after another.
 *
 * @param {(options: any) => Trainer} make Called once, with the page's options.
 */
export async function serveTrainer(make) {
  /** @type {Record<string, any>} */
  let trainer;
  const onMessage = async (
    /** @type {any} */ { options, id, name, args },
    /** @type {(answer: unknown) => void} */ answer,
  ) => {
    if (name === undefined) {
      trainer = make(options);
      return;
    }
    try {
      answer({ id, result: await trainer[name](...args) });
    } catch (error) {
      answer({ id, error: /** @type {Error} */ (error).message });
    }
  };
  if (typeof postMessage === "function") {
    onmessage = ({ data }) => onMessage(data, postMessage);
  } else {
    const { parentPort } = await import(threads);
    parentPort.on("message", (/** @type {any} */ data) => onMessage(data, (answer) => parentPort.postMessage(answer)));
  }
}

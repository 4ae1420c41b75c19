/**
 * The calls of the API, on one server. Nothing that it says is believed where it can be computed: ids, digests, the genesis
 * document, signatures and receipts are checked. Calls are retried, as doing them twice is doing them once. Answers are the
 * wire's own JSON.
 */
import { isHex, parsed, unhex, utf8 } from "./bytes.js";
import { checkSignature, digestOf, publicKeyOf, sign } from "./crypto.js";
import { check, DagAcflError } from "./errors.js";
import { encodeHeader, signedBytes, transactionId } from "./header.js";
import { layoutOf } from "./model.js";

/** @typedef {import("./header.js").Header} Header */
/** @typedef {Record<string, any>} Json As docs/protocol.md and /openapi.json describe it. */
/** @typedef {import("./model.js").Layout} Layout */
/** @typedef {{ledger: string, document: Json, layout: Layout, model: string}} Genesis `model`: its digest. */

/**
 * @typedef {object} Asked
 * @property {Blob | FormData} [body] It is posted.
 * @property {number} [size] The body's, in bytes.
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 * @property {number} [until] When its time is up, on `Date.now`'s scale.
 * @property {number} [most] Bytes that the answer may have.
 */

const MODEL_TYPE = "application/vnd.safetensors";
const SILENCE_MS = 30_000;
/** Bytes of an answer that is no model, and of an event. */
const MOST = 1 << 24;
const MOST_OF_EVENT = 1 << 20;
/** Slowest upload that is waited for, in bytes per millisecond. */
const SLOWEST = 13;

/** @param {number} ms @param {AbortSignal} [signal] Ends it early. @returns {Promise<void>} */
export const pause = (ms, signal) =>
  new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, signal?.aborted ? 0 : ms);
    signal?.addEventListener("abort", end);
  });

export class LedgerClient {
  /** @type {Genesis | undefined} */
  known;

  /**
   * @param {string} server Its address, such as `http://localhost:8900`.
   * @param {object} [options]
   * @param {string} [options.key] The Ed25519 seed that signs, 64 hexadecimal digits; without one it only reads.
   * @param {string} [options.ledger] The only ledger to talk to; else the one that the server has.
   * @param {string} [options.token] Where the server asks for one.
   * @param {number} [options.timeoutMs] For a call with all its attempts.
   */
  constructor(server, { key = "", ledger, token, timeoutMs = 300_000 } = {}) {
    check(/^https?:\/\//.test(server), `server must look like http://host:8900, not ${server}`, "parameter-invalid");
    check(!key || isHex(key), "a key is 64 lowercase hexadecimal digits", "parameter-invalid");
    this.server = server.replace(/\/+$/, "");
    this.key = key;
    this.ledger = ledger;
    this.timeoutMs = timeoutMs;
    this.headers = token && { authorization: `Bearer ${token}` };
  }

  /**
   * One request, without retries: the body comes in pieces, and a refusal is thrown.
   *
   * @param {string} path
   * @param {Asked} [asked]
   */
  async open(path, { body, size = 0, headers, signal, until = Infinity } = {}) {
    const controller = new AbortController();
    const hangUp = () => controller.abort();
    signal?.addEventListener("abort", hangUp, { signal: controller.signal });
    /** @template T @param {Promise<T>} work @returns {Promise<T>} */
    const watched = async (work, ms = SILENCE_MS) => {
      const timer = setTimeout(hangUp, Math.min(ms, until - Date.now()));
      try {
        return await work;
      } catch (error) {
        const { cause, message } = /** @type {any} */ (error);
        const reason = controller.signal.aborted ? "no answer in time" : (cause?.code ?? message);
        hangUp();
        throw new DagAcflError("server-unavailable", `${this.server}: ${reason}`);
      } finally {
        clearTimeout(timer);
      }
    };
    /** @type {RequestInit} */
    const request = {
      method: body ? "POST" : "GET",
      body,
      headers: { ...headers, ...this.headers },
      signal: controller.signal,
      cache: "no-store",
      redirect: "manual", // it could lead to what only this machine reaches
    };
    const response = await watched(fetch(this.server + path, request), SILENCE_MS + size / SLOWEST);
    const { ok, status } = response;
    const pieces = (async function* () {
      const reader = response.body?.getReader();
      try {
        for (let piece; reader && !(piece = await watched(reader.read())).done; ) yield piece.value;
      } finally {
        hangUp();
      }
    })();
    if (ok) return { status, pieces };
    const said = parsed(await gathered(pieces)); // of a proxy's page the status says enough
    const problem = /** @type {Json} */ ({ retry_after: response.headers.get("retry-after"), ...said });
    const code = /^\/problems\/([a-z-]+)$/.exec(problem.type)?.[1] ?? "api-error";
    throw new DagAcflError(code, `${this.server}: ${problem.detail ?? `HTTP ${status}`}`, status, problem);
  }

  /** One request and its whole answer, tried again while the server cannot. @param {string} path @param {Asked} [asked] */
  async ask(path, asked) {
    const until = Date.now() + this.timeoutMs;
    for (let pauseMs = 100; ; pauseMs = Math.min(2 * pauseMs, 5000)) {
      try {
        const { status, pieces } = await this.open(path, { ...asked, until });
        return { status, body: await gathered(pieces, asked?.most) };
      } catch (error) {
        const retryAfterMs = 1000 * mayPass(error).retry_after || 0;
        const waitMs = Math.max(pauseMs * (0.5 + Math.random() / 2), retryAfterMs);
        if (Date.now() + waitMs > until) throw error;
        await pause(waitMs);
      }
    }
  }

  /**
   * An answer's JSON, of this ledger; of any GET, such as `/v1/clusters`.
   *
   * @param {string} path
   * @param {Asked} [asked]
   */
  async get(path, asked) {
    return this.ofLedger((await this.ask(path, asked)).body);
  }

  /** @param {Uint8Array} body @returns {Json} */
  ofLedger(body) {
    const answer = parsed(body);
    check(answer, `${this.server} sent what is no JSON object`, "answer-invalid");
    const same = !answer.ledger || (this.ledger ??= answer.ledger) === answer.ledger;
    check(same, `${this.server} has ledger ${answer.ledger}, not ${this.ledger}`, "wrong-ledger");
    return answer;
  }

  /** The ledger's rules; verified once, then remembered. @returns {Promise<Genesis>} */
  async genesis() {
    if (this.known) return this.known;
    const { ledger, transaction = {} } = await this.get("/v1/genesis");
    await checkTransaction(transaction, ledger);
    const { body } = await this.ask(`/v1/transactions/${ledger}/attachment`);
    // Places in the header's hexadecimal digits, by docs/protocol.md.
    const field = (/** @type {number} */ offset, size = 32) =>
      transaction.header.slice(2 * offset, 2 * (offset + size));
    check((await digestOf(body)) === field(178), "the genesis document is another");
    await checkSignature(field(42), signedBytes("author", ledger), transaction.author_signature);
    const document = parsed(body);
    check(document?.format === "dag-acfl/genesis/v1", "an unknown version of genesis", "genesis-invalid");
    const layout = layoutOf(document.layout.filter((/** @type {Json} */ { role }) => role !== "local"));
    check(layout.size === Number(`0x${field(170, 8)}`), "the genesis model has another size");
    return (this.known = { ledger, document, layout, model: field(138) });
  }

  /** The author that this client's key makes: `key:` and the public key. */
  async author() {
    return `key:${await publicKeyOf(this.key)}`;
  }

  /** One transaction. @param {string} id */
  async transaction(id) {
    return checkTransaction(await this.get(`/v1/transactions/${id}`), id);
  }

  /**
   * Ask whose models resemble one's own, and for their average.
   *
   * @param {string | Uint8Array} by The own newest transaction, or (joining) the model.
   */
  async select(by) {
    const body =
      typeof by === "string" ? blob(JSON.stringify({ transaction: by }), "application/json") : blob(by, MODEL_TYPE);
    return this.get("/v1/selections", { body, size: body.size });
  }

  /** A model by its SHA-256. @param {string} digest */
  async download(digest) {
    const { layout } = await this.genesis();
    const { body } = await this.ask(`/v1/models/${digest}`, { most: layout.size });
    check((await digestOf(body)) === digest, `${this.server} sent other bytes than ${digest}`);
    return body;
  }

  /**
   * Publish exactly this transaction. Sent again it is answered with the same one.
   *
   * @param {Header} header With it the id is known before anybody is asked.
   * @param {Uint8Array} model
   * @returns {Promise<{id: string, created: boolean}>} `created`: the server did not have it yet.
   */
  async publish(header, model) {
    const id = await transactionId(encodeHeader(header));
    const { ledger, kind, attachment_digest, model_size, parents, ...stated } = header;
    const by = Number(`0x${attachment_digest}`) ? { selection: attachment_digest } : { parents };
    const signature = await sign(this.key, signedBytes("author", id));
    const form = new FormData();
    form.append("transaction", JSON.stringify({ ...stated, ...by, signature, id }));
    form.append("model", blob(model, MODEL_TYPE));
    const { status, body } = await this.ask("/v1/transactions", { body: form, size: model.length });
    await checkTransaction(this.ofLedger(body), id);
    return { id, created: status === 201 };
  }

  /**
   * Transactions as they are admitted, without end; a lost connection is taken up again where it broke.
   *
   * @param {{after?: string, signal?: AbortSignal}} [options] `after`: cursor of an earlier event.
   * @returns {AsyncGenerator<{cursor: string | undefined, transaction: Json}, void>}
   */
  async *events({ after: cursor, signal } = {}) {
    while (!signal?.aborted) {
      try {
        const headers = cursor ? { "last-event-id": cursor } : undefined;
        const { pieces } = await this.open("/v1/events", { headers, signal });
        const decoder = new TextDecoder();
        let rest = "";
        for await (const piece of pieces) {
          const blocks = (rest + decoder.decode(piece, { stream: true })).split(/\r?\n\r?\n/);
          rest = blocks.pop() ?? "";
          short(rest.length, MOST_OF_EVENT);
          for (const block of blocks) {
            const field = (/** @type {string} */ name) => new RegExp(`^${name}: ?(.*)$`, "m").exec(block)?.[1];
            cursor = field("id") ?? cursor;
            if (field("event") !== "transaction") continue;
            const transaction = this.ofLedger(utf8(field("data") ?? ""));
            yield { cursor, transaction: await checkTransaction(transaction, transaction.id) };
          }
        }
      } catch (error) {
        if (/** @type {any} */ (error).code === "cursor-unknown")
          cursor = undefined; // the server was put back from a backup
        else mayPass(error);
      }
      await pause(500, signal);
    }
  }
}

/**
 * That a transaction is the one that was meant, and that a server signed its receipt.
 *
 * @param {Json} answer
 * @param {string} id
 */
async function checkTransaction(answer, id) {
  check((await transactionId(unhex(answer.header))) === id, "the header is not that of the transaction");
  const { issuer, received_at_ms: at, members_version: version, signature } = answer.receipt;
  await checkSignature(issuer, signedBytes("receipt", id, at, version), signature);
  return answer;
}

/** What a fault says that may pass by waiting; another is thrown again. @param {any} error */
function mayPass(error) {
  const { code, status, problem } = error;
  if (code === "server-unavailable" || status >= 500 || status === 408 || status === 429) return problem;
  throw error;
}

/** @param {string | Uint8Array} content @param {string} type */
const blob = (content, type) => new Blob([/** @type {BlobPart} */ (content)], { type });

/** @param {number} size @param {number} most */
const short = (size, most) => check(size <= most, "the answer is too long", "answer-invalid");

/** @param {AsyncIterable<Uint8Array>} pieces @param {number} [most] */
async function gathered(pieces, most = MOST) {
  const parts = [];
  let size = 0;
  for await (const piece of pieces) {
    short((size += piece.length), most);
    parts.push(/** @type {BlobPart} */ (piece));
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

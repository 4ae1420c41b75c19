/**
 * The calls of the API, on one server. Nothing that it says is believed where it can be computed: ids, digests, the genesis
 * document, signatures and receipts are checked. Calls are retried, as doing them twice is doing them once. Answers are the
 * wire's own JSON.
 */
import { isHex, unhex } from "./bytes.js";
import { checkSignature, digestOf, publicKeyOf, random, sign } from "./crypto.js";
import { check, DagAcflError } from "./errors.js";
import { encodeHeader, signedBytes, transactionId } from "./header.js";
import { layoutOf } from "./model.js";

/** @typedef {import("./header.js").Header} Header */
/** @typedef {Record<string, any>} Json As docs/protocol.md and /openapi.json describe it. */
/** @typedef {import("./model.js").Layout} Layout */
/** @typedef {{ledger: string, document: Json, layout: Layout, model: string}} Genesis `model`: its digest. */
/** @typedef {{method?: string, body?: Blob, headers?: Record<string, string>, signal?: AbortSignal}} Asked */

const MODEL_TYPE = "application/vnd.safetensors";
const SILENCE_MS = 30_000;
/** Slowest upload that is waited for, in bytes per millisecond. */
const SLOWEST = 13;

/** @param {number} ms @param {AbortSignal} [signal] Ends it early. @returns {Promise<void>} */
export const pause = (ms, signal) =>
  new Promise((resolve) => {
    setTimeout(resolve, signal?.aborted ? 0 : ms);
    signal?.addEventListener("abort", () => resolve(), { once: true });
  });

export class LedgerClient {
  /**
   * @param {string} server Its address, such as `http://localhost:8900`.
   * @param {object} [options]
   * @param {string} [options.key] The Ed25519 seed that signs, 64 hexadecimal digits; without one it only reads.
   * @param {string} [options.ledger] The only ledger to talk to; else the one that the server has.
   * @param {string} [options.token] Where the server asks for one.
   * @param {number} [options.timeoutMs] For a call with all its attempts.
   */
  constructor(server, { key, ledger, token, timeoutMs = 300_000 } = {}) {
    check(/^https?:\/\//.test(server), `server must look like http://host:8900, not ${server}`, "parameter-invalid");
    check(!key || isHex(key), "a key is 64 lowercase hexadecimal digits", "parameter-invalid");
    this.server = server.replace(/\/+$/, "");
    this.key = key ?? "";
    this.ledger = ledger;
    this.timeoutMs = timeoutMs;
    this.headers = token ? { authorization: `Bearer ${token}` } : undefined;
    /** @type {Genesis | undefined} */
    this.known = undefined;
  }

  /**
   * One request, without retries: the body comes in pieces, and a refusal is thrown.
   *
   * @param {string} path
   * @param {Asked} [asked]
   */
  async open(path, { signal, headers, ...asked } = {}) {
    const controller = new AbortController();
    const hangUp = () => controller.abort();
    signal?.addEventListener("abort", hangUp);
    /** @template T @param {Promise<T>} work @returns {Promise<T>} */
    const watched = async (work, ms = SILENCE_MS) => {
      const timer = setTimeout(hangUp, ms);
      try {
        return await work;
      } catch (error) {
        const { cause, message } = /** @type {any} */ (error);
        throw new DagAcflError(
          "server-unavailable",
          `${this.server}: ${controller.signal.aborted ? "no answer in time" : (cause?.code ?? message)}`,
        );
      } finally {
        clearTimeout(timer);
      }
    };
    /** @type {RequestInit} */
    const request = {
      ...asked,
      headers: { ...headers, ...this.headers },
      signal: controller.signal,
      cache: "no-store",
    };
    const response = await watched(fetch(this.server + path, request), SILENCE_MS + (asked.body?.size ?? 0) / SLOWEST);
    const pieces = (async function* () {
      const reader = response.body?.getReader();
      try {
        for (let piece; reader && !(piece = await watched(reader.read())).done; ) yield piece.value;
      } finally {
        signal?.removeEventListener("abort", hangUp);
        hangUp();
      }
    })();
    if (response.ok) return { status: response.status, pieces };
    const body = await gathered(pieces);
    const problem = /** @type {Json} */ ({ retry_after: response.headers.get("retry-after") });
    try {
      Object.assign(problem, parsed(body));
    } catch {} // a proxy's page: its status says enough
    const code = /^\/problems\/([a-z-]+)$/.exec(problem.type)?.[1] ?? "api-error";
    throw new DagAcflError(
      code,
      `${this.server}: ${problem.detail ?? `HTTP ${response.status}`}`,
      response.status,
      problem,
    );
  }

  /** One request and its whole answer, tried again while the server cannot. @param {string} path @param {Asked} [asked] */
  async ask(path, asked) {
    const until = Date.now() + this.timeoutMs;
    for (let pauseMs = 100; ; pauseMs = Math.min(2 * pauseMs, 5000)) {
      try {
        const { status, pieces } = await this.open(path, asked);
        return { status, body: await gathered(pieces) };
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
    return this.ofLedger(parsed((await this.ask(path, asked)).body));
  }

  /** @param {Json} answer */
  ofLedger(answer) {
    const same = !answer.ledger || (this.ledger ??= answer.ledger) === answer.ledger;
    check(same, `${this.server} has ledger ${answer.ledger}, not ${this.ledger}`, "wrong-ledger");
    return answer;
  }

  /** The ledger's rules; verified once, then remembered. @returns {Promise<Genesis>} */
  async genesis() {
    if (this.known) return this.known;
    const { ledger, transaction } = await this.get("/v1/genesis");
    await checkTransaction(transaction, ledger);
    const { body } = await this.ask(`/v1/transactions/${ledger}/attachment`);
    // Places in the header's hexadecimal digits, by docs/protocol.md.
    const field = (/** @type {number} */ offset, size = 32) =>
      transaction.header.slice(2 * offset, 2 * (offset + size));
    check((await digestOf(body)) === field(178), "the genesis document is another");
    await checkSignature(field(42), signedBytes("author", ledger), transaction.author_signature);
    const document = parsed(body);
    check(document.format === "dag-acfl/genesis/v1", "an unknown version of genesis", "genesis-invalid");
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
    const [body, type] =
      typeof by === "string" ? [JSON.stringify({ transaction: by }), "application/json"] : [by, MODEL_TYPE];
    return this.get("/v1/selections", {
      method: "POST",
      body: new Blob([/** @type {BlobPart} */ (body)]),
      headers: { "content-type": type },
    });
  }

  /** A model by its SHA-256. @param {string} digest */
  async download(digest) {
    const { body } = await this.ask(`/v1/models/${digest}`);
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
    const boundary = random(); // does not occur in a model by chance
    const part = (/** @type {string} */ name, /** @type {string} */ type) =>
      `--${boundary}\r\nContent-Disposition: form-data; name=${name}\r\nContent-Type: ${type}\r\n\r\n`;
    const body = new Blob([
      `${part('"transaction"', "application/json")}${JSON.stringify({ ...stated, ...by, signature, id })}\r\n`,
      part('"model"; filename="model.safetensors"', MODEL_TYPE),
      /** @type {BlobPart} */ (model),
      `\r\n--${boundary}--\r\n`,
    ]);
    const headers = { "content-type": `multipart/form-data; boundary=${boundary}` };
    const answer = await this.ask("/v1/transactions", { method: "POST", body, headers });
    await checkTransaction(this.ofLedger(parsed(answer.body)), id);
    return { id, created: answer.status === 201 };
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
        /** @type {Record<string, string>} */
        const headers = cursor ? { "last-event-id": cursor } : {};
        const { pieces } = await this.open("/v1/events", { headers, signal });
        const decoder = new TextDecoder();
        let rest = "";
        for await (const piece of pieces) {
          const blocks = (rest + decoder.decode(piece, { stream: true })).split(/\r?\n\r?\n/);
          rest = blocks.pop() ?? "";
          for (const block of blocks) {
            const fields = Object.fromEntries(
              [...block.matchAll(/^(\w+): ?(.*)$/gm)].map(([, name, value]) => [name, value]),
            );
            cursor = fields.id ?? cursor;
            if (fields.event === "transaction") yield { cursor, transaction: this.ofLedger(JSON.parse(fields.data)) };
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
  const { issuer, received_at_ms: at, members_version: version, signature } = answer.receipt;
  check((await transactionId(unhex(answer.header))) === id, "the header is not that of the transaction");
  await checkSignature(issuer, signedBytes("receipt", id, at, version), signature);
  return answer;
}

/** What a fault says that may pass by waiting; another is thrown again. @param {any} error */
function mayPass(error) {
  const { code, status, problem } = error;
  if (code === "server-unavailable" || status >= 500 || status === 408 || status === 429) return problem;
  throw error;
}

/** @param {AsyncIterable<Uint8Array>} pieces */
async function gathered(pieces) {
  const parts = [];
  for await (const piece of pieces) parts.push(/** @type {BlobPart} */ (piece));
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** @param {Uint8Array} body @returns {Json} */
function parsed(body) {
  try {
    return JSON.parse(new TextDecoder().decode(body));
  } catch {
    throw new DagAcflError("answer-invalid", "the answer is not JSON");
  }
}

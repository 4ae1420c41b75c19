/**
 * Asking the server: JSON with the reader's token, and events that go on where they stopped.
 *
 * The token is kept for this tab alone, and only ever sent in a header.
 */

const TOKEN = "dag-acfl-token";
export const SILENT_MS = 40_000; // the server says something every 15 s
const LONGEST_ANSWER_MS = 30_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

/** A refusal by the server, as its problem says it. */
export class Refused extends Error {
  /** @param {number} status @param {string} code @param {string} message */
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  /** @param {string} value */
  set: (value) => sessionStorage.setItem(TOKEN, value.trim()),
};

/** @param {Record<string, string>} [more] @returns {Record<string, string>} */
const headers = (more = {}) => (token.get() ? { ...more, authorization: `Bearer ${token.get()}` } : more);

/**
 * @param {string} path @param {RequestInit & {headers?: Record<string, string>}} [init]
 * @returns {Promise<Response>}
 */
async function ask(path, init = {}) {
  const signal = init.signal ?? AbortSignal.timeout(LONGEST_ANSWER_MS);
  const answer = await fetch(path, { ...init, signal, headers: headers(init.headers), credentials: "omit" });
  if (answer.ok) return answer;
  const problem = await answer.json().catch(() => ({}));
  const code = String(problem.type ?? "").replace("/problems/", "");
  throw new Refused(answer.status, code, problem.detail ?? problem.title ?? `the server answered ${answer.status}`);
}

/** @param {string} path @returns {Promise<any>} */
export const getJson = async (path) => (await ask(path)).json();

/** @param {string} path @param {unknown} body @returns {Promise<any>} */
export const postJson = async (path, body) =>
  (await ask(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) })).json();

/** @param {string} path */
export const getBytes = async (path) => new Uint8Array(await (await ask(path)).arrayBuffer());

/**
 * Server-sent events until the signal ends them; connects anew by itself, from the last event on.
 *
 * @param {string} path
 * @param {{onEvent: (kind: string, data: any, id: string) => void, onState: (state: "live" | "away", why?: Error) => void,
 *          onHeard: () => void, onLost: () => void, signal: AbortSignal}} to `onHeard`: the server said something, if only
 *          that it is there; `onLost`: events were missed for good, ask for everything again.
 */
export async function follow(path, { onEvent, onState, onHeard, onLost, signal }) {
  let last = "";
  let pause = FIRST_PAUSE_MS;
  while (!signal.aborted) {
    const attempt = new AbortController();
    const end = () => attempt.abort();
    signal.addEventListener("abort", end);
    let silence = setTimeout(end, SILENT_MS);
    try {
      const answer = await ask(path, { signal: attempt.signal, headers: last ? { "last-event-id": last } : {} });
      onState("live");
      pause = FIRST_PAUSE_MS;
      const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
      const decoder = new TextDecoder();
      let text = "";
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        clearTimeout(silence);
        silence = setTimeout(end, SILENT_MS);
        onHeard();
        text += decoder.decode(value, { stream: true });
        const events = text.split("\n\n");
        text = /** @type {string} */ (events.pop());
        for (const event of events) {
          const fields = Object.fromEntries(
            event.split("\n").map((line) => [line.split(":", 1)[0], line.slice(line.indexOf(":") + 1).trim()]),
          );
          if (fields.id) last = fields.id;
          if (fields.data) onEvent(fields.event ?? "message", JSON.parse(fields.data), last);
        }
      }
      throw new Error("the stream ended");
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof Refused && error.status === 410) {
        last = "";
        onLost();
      }
      onState("away", /** @type {Error} */ (error));
    } finally {
      clearTimeout(silence);
      signal.removeEventListener("abort", end);
      attempt.abort();
    }
    await new Promise((resolve) => setTimeout(resolve, pause * (0.75 + Math.random() / 2)));
    pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
  }
}

/** What a server may say that means harm; and that no name of a folder's other files is taken for one of ours. */
import assert from "node:assert/strict";
import { mkdtemp, readdir, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { folder } from "../src/folder.js";
import { encodeHeader } from "../src/header.js";
import { LedgerClient, Participant } from "../src/index.js";
import { Mlp } from "../src/perceptron.js";

/**
 * @param {import("node:http").RequestListener} answer
 * @param {(url: string) => Promise<void>} ask
 */
async function against(answer, ask) {
  const server = createServer(answer);
  await new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(undefined)));
  try {
    await ask(`http://127.0.0.1:${/** @type {import("node:net").AddressInfo} */ (server.address()).port}`);
  } finally {
    server.close();
    server.closeAllConnections?.();
  }
}

const digits = (/** @type {number} */ digit) => String(digit).repeat(64);

/** Blanks, as long as somebody listens: 200 MB. @param {string} fill */
const endless = (fill) => {
  const sent = { bytes: 0 };
  /** @type {import("node:http").RequestListener} */
  const answer = (_, response) => {
    const more = () => {
      for (; !response.destroyed && sent.bytes < 200e6; sent.bytes += 65536)
        if (!response.write(fill.repeat(65536))) return void response.once("drain", more);
      response.end();
    };
    more();
  };
  return { sent, answer };
};

test("an endless answer is given up after 16 MiB, an endless event after one", async () => {
  const body = endless(" ");
  await against(body.answer, async (url) => {
    await assert.rejects(new LedgerClient(url).get("/v1/tips"), { code: "answer-invalid" });
  });
  assert.ok(body.sent.bytes < 60e6);
  const event = endless("x");
  await against(event.answer, async (url) => {
    await assert.rejects(new LedgerClient(url).events().next(), { code: "answer-invalid" });
  });
  assert.ok(event.sent.bytes < 40e6);
});

test("an answer that drips is given up in time", { timeout: 60_000 }, async () => {
  await against(
    (_, response) => {
      const timer = setInterval(() => response.write(" "), 50);
      response.on("close", () => clearInterval(timer));
    },
    async (url) => {
      await assert.rejects(new LedgerClient(url, { timeoutMs: 400 }).get("/v1/tips"), { code: "server-unavailable" });
    },
  );
});

test("what is no transaction is told by its code, be it an answer or an event", async () => {
  const told = [
    ["null", "answer-invalid"],
    ["7", "answer-invalid"],
    ["{", "answer-invalid"],
    ["{}", "digest-mismatch"],
    [JSON.stringify({ id: digits(1), header: digits(2), transaction: { header: digits(2) } }), "digest-mismatch"],
  ];
  for (const [said, code] of told) {
    await against(
      (_, response) => void response.end(said),
      (url) => assert.rejects(new LedgerClient(url).genesis(), { code }),
    );
    await against(
      (_, response) => void response.end(`event: transaction\ndata: ${said}\n\n`),
      (url) => assert.rejects(new LedgerClient(url).events().next(), { code }),
    );
  }
});

test("no server leads a client elsewhere", async () => {
  let asked = 0;
  await against(
    (_, response) => void response.end(`{"asked": ${++asked}}`),
    (inside) =>
      against(
        (_, response) => void response.writeHead(307, { location: `${inside}/admin` }).end(),
        (url) => assert.rejects(new LedgerClient(url).select(digits(0)), { code: "api-error", status: 307 }),
      ),
  );
  assert.equal(asked, 0);
});

const header = {
  ledger: digits(1),
  kind: 1,
  author: `key:${digits(2)}`,
  sequence: 3,
  created_at_ms: 4,
  num_examples: 5,
  noise_std: 0,
  start: digits(6),
  model_digest: digits(7),
  model_size: 8,
  attachment_digest: digits(8),
  parents: [digits(9)],
  metrics: {},
  extensions: {},
};

test("a server's id of another length adds no field to what an author signs", () => {
  const refused = { code: "transaction-invalid" };
  const forged = `${digits(8)}0001${digits(7)}0000`;
  assert.throws(() => encodeHeader({ ...header, attachment_digest: forged }), refused);
  assert.throws(() => encodeHeader({ ...header, parents: [forged] }), refused);
  assert.throws(() => encodeHeader({ ...header, attachment_digest: digits(8).replace("8", "x") }), refused);
});

/** @param {unknown} next What the server says the next sequence is. */
async function conflicted(next) {
  const storage = await folder(await mkdtemp(join(tmpdir(), "dag-acfl-")));
  await against(
    (request, response) => {
      const unknown = request.method === "GET";
      response.statusCode = unknown ? 404 : 409;
      const type = `/problems/${unknown ? "transaction-unknown" : "sequence-conflict"}`;
      response.end(JSON.stringify({ type, next_sequence: next }));
    },
    async (url) => {
      const trainer = /** @type {import("../src/participant.js").Trainer} */ ({});
      const participant = await Participant.open(url, { storage, trainer, timeoutMs: 300 });
      await assert.rejects(participant.publish(header, new Uint8Array(8)), { code: "sequence-conflict" });
      const again = await Participant.open(url, { storage, trainer });
      assert.equal(again.position.pending, undefined);
    },
  );
}

test("a next sequence that is no number leaves nothing behind that could never be sent", async () => {
  for (const next of [5.5, "7", 2 ** 60, { above: 1 }, null]) await conflicted(next);
});

test("a ledger's hints do not make training endless", () => {
  const trainer = new Mlp({ layers: [1, 2], trainX: new Float32Array(2), trainY: new Uint8Array(2) });
  for (const hints of [{ batch_size: 0 }, { batch_size: -1 }, { batch_size: 0.5 }, { learning_rate: "much" }])
    assert.throws(() => trainer.train(trainer.initialArrays(), { epochs: 1, hints }), /batch_size|learning_rate/);
});

test("other files of the folder stay", async () => {
  const path = await mkdtemp(join(tmpdir(), "dag-acfl-"));
  const others = ["model-notes.md", "paper.half", "model-1.txt"];
  for (const name of others) await writeFile(join(path, name), "mine");
  await writeFile(join(path, `model-${digits(1)}`), "old");
  for (const name of ["position.12.half", `model-${digits(2)}.12.half`]) await writeFile(join(path, name), "torn");
  const storage = await folder(path);
  const participant = await Participant.open("http://127.0.0.1:1", {
    storage,
    trainer: /** @type {import("../src/participant.js").Trainer} */ ({}),
  });
  participant.client.publish = async () => ({ id: "", created: true });
  await participant.publish(header, new Uint8Array(8));
  assert.deepEqual(new Set(await readdir(path)), new Set([...others, "position"]));
});

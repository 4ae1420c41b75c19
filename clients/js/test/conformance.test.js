import { readFile } from "node:fs/promises";
import { test } from "node:test";
import { conform } from "./lib/conformance.js";

test("the protocol's vectors hold", async (t) => {
  const held = await conform(await readFile(new URL("../../../docs/conformance/v1.json", import.meta.url), "utf8"));
  t.diagnostic(
    Object.entries(held)
      .map(([kind, count]) => `${count} ${kind}`)
      .join(", "),
  );
});

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { test } from "node:test";

const folder = fileURLToPath(new URL("..", import.meta.url));
const minified = (/** @type {string[]} */ ...options) =>
  execFileSync(
    `${folder}/node_modules/.bin/esbuild`,
    ["src/index.js", "--bundle", "--minify", "--format=esm", "--target=es2022", ...options],
    { cwd: folder, stdio: ["ignore", "pipe", "ignore"] },
  ).length;

test("a page loads 15,000 bytes at most, and 5,000 more where the platform has no cryptography", (t) => {
  const [first, all] = [minified("--external:./sha2.js", "--external:./ed25519.js"), minified()];
  t.diagnostic(`${first} bytes minified; with our own SHA-2 and Ed25519, loaded where the platform has none, ${all}`);
  assert.ok(first <= 15_000);
  assert.ok(all <= 20_000);
});

// Runs test/*.test.ts: they are bundled first, since the oldest Node.js that builds this reads no TypeScript.
import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const out = mkdtempSync(path.join(tmpdir(), "isobar-console-"));
try {
  const tests = readdirSync(path.join(here, "test")).filter((f) => f.endsWith(".test.ts")).map((f) => `test/${f}`);
  await esbuild.build({
    absWorkingDir: here, entryPoints: tests, outdir: out, outExtension: { ".js": ".mjs" },
    bundle: true, platform: "node", format: "esm", target: "node20", sourcemap: "inline", logLevel: "warning",
    define: { HERE: JSON.stringify(here) },
  });
  const files = readdirSync(out).map((f) => path.join(out, f));
  process.exitCode = spawnSync(process.execPath, ["--enable-source-maps", "--test", ...files], { stdio: "inherit" }).status ?? 1;
} finally {
  rmSync(out, { recursive: true });
}

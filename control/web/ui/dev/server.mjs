// Serves ../../dist, built anew when a source changes, and a made-up world (world.mjs). For work on the pages alone.
//
//   npm run dev -- [--port 5173] [--login token|code] [--bounded] [--still] [--empty] [--broken] [--workloads N] [--cap N]
//
// --login asks for a token (any but "wrong"), --bounded shows a reader of two namespaces, --still has no changes,
// --empty has nothing in it, --broken answers views with an error, and --workloads grows it to so many,
// of which the map shows --cap groups (2000).
import { spawnSync } from "node:child_process";
import { watch } from "node:fs";
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import path from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { answer, grow, NoSuchView } from "./world.mjs";

const here = path.dirname(fileURLToPath(import.meta.url));
const ui = path.join(here, "..");
const dist = path.join(ui, "..", "dist");
const { values: o } = parseArgs({
  options: {
    port: { type: "string", default: "5173" }, login: { type: "string", default: "none" },
    bounded: { type: "boolean" }, still: { type: "boolean" }, empty: { type: "boolean" }, broken: { type: "boolean" },
    workloads: { type: "string" }, cap: { type: "string" },
  },
});

if (o.workloads) grow(Number(o.workloads), Number(o.cap ?? 0));

function build() {
  spawnSync(process.execPath, ["build.mjs"], { cwd: ui, stdio: ["ignore", "ignore", "inherit"] });
}
build();
let changed;
watch(path.join(ui, "src"), { recursive: true }, () => {
  clearTimeout(changed);
  changed = setTimeout(build, 150);
});

const kinds = { ".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml", ".txt": "text/plain; charset=utf-8" };
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";
const pages = /^\/((map|matrix|explain|policies|workloads|preview|accounts|login)(\/.*)?)?$/;

let isIn = o.login === "none";
let revision = 1;
const streams = new Set();
if (!o.still) {
  setInterval(() => {
    revision++;
    for (const s of streams) s.write(`event: revision\ndata: {"revision":"${revision}"}\n\n`);
  }, 5000).unref();
}

async function body(req) {
  let text = "";
  for await (const part of req) text += part;
  return text === "" ? undefined : JSON.parse(text);
}

const server = createServer(async (req, res) => {
  res.setHeader("Content-Security-Policy", policy);
  res.setHeader("X-Content-Type-Options", "nosniff");
  const url = new URL(req.url, "http://localhost");
  const json = (code, value) => res.writeHead(code, { "Content-Type": "application/json", "Cache-Control": "no-store" }).end(JSON.stringify(value));
  const status = (code, reason, message) => json(code, { kind: "Status", apiVersion: "v1", status: "Failure", code, reason, message });
  try {
    if (url.pathname === "/api/session") {
      if (req.method === "POST") {
        const { token, code } = (await body(req)) ?? {};
        if ((token ?? code) === "wrong") return status(401, "Unauthorized", "the cluster does not know this token");
        isIn = true;
      } else if (req.method === "DELETE") {
        isIn = false;
        return json(200, {});
      }
      if (!isIn) return json(401, { login: o.login, oidc: o.login === "token" });
      return json(200, { user: "kim@example.com", groups: ["platform", "system:authenticated"], csrf: "sign", login: o.login, oidc: false, readOnly: false, cluster: "made-up" });
    }
    if (url.pathname.startsWith("/api/") && !isIn) return status(401, "Unauthorized", "log in first");
    if (req.method !== "GET" && req.headers["x-isobar-csrf"] !== "sign" && url.pathname.startsWith("/api/")) return status(403, "Forbidden", "the request has no sign of its session");
    if (url.pathname === "/api/events") {
      res.writeHead(200, { "Content-Type": "text/event-stream", "Cache-Control": "no-store" });
      res.write(`event: revision\ndata: {"revision":"${revision}"}\n\n`);
      streams.add(res);
      req.on("close", () => streams.delete(res));
      return;
    }
    if (url.pathname === "/api/apply") {
      const { manifests, force } = await body(req);
      const last = !manifests.includes("conflict") || force ? { outcome: "created" } : { outcome: "conflict", message: 'Apply failed with 1 conflict: conflict with "kubectl": .spec.ingress' };
      return json(200, { items: [{ id: "annp/shop/egress", outcome: "unchanged" }, { id: "networkpolicy/shop/db", ...last }] });
    }
    if (url.pathname.startsWith("/api/views/")) {
      const name = url.pathname.slice("/api/views/".length);
      if (o.broken && name !== "me") return status(503, "ServiceUnavailable", "the controller has not read the cluster yet: networkpolicies.networking.k8s.io: 1 of 9 kinds");
      const found = answer(name, url.searchParams, req.method === "POST" ? await body(req) : undefined, { bounded: !!o.bounded, empty: !!o.empty });
      if (found === undefined) return status(404, "NotFound", `there is none by that name, or you may not see it`);
      return json(200, { revision: String(revision), ...found });
    }
    if (url.pathname.startsWith("/api/")) return status(404, "NotFound", "there is no such path, or not by this method");
    const file = pages.test(url.pathname) ? "index.html" : path.normalize(url.pathname);
    const text = await readFile(path.join(dist, file));
    res.writeHead(200, { "Content-Type": kinds[path.extname(file)] ?? "application/octet-stream" }).end(text);
  } catch (e) {
    if (e instanceof NoSuchView) status(400, "BadRequest", e.message);
    else if (e.code === "ENOENT" || e.code === "EISDIR") status(404, "NotFound", "there is no such page");
    else status(500, "InternalError", String(e.stack ?? e));
  }
});
server.listen(Number(o.port), "127.0.0.1", () => console.log(`http://127.0.0.1:${o.port}`));

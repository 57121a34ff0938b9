// Builds ../dist, which is committed, so that Go alone builds the product. The same sources give the same bytes:
// nothing of the time, the machine or the folder goes into them.
import { createHash } from "node:crypto";
import { cp, mkdir, readFile, readdir, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = path.dirname(fileURLToPath(import.meta.url));
const dist = path.join(here, "..", "dist");

// Browsers of 2024: the oldest that know light-dark() in CSS.
const target = ["chrome123", "firefox120", "safari17.5"];

const common = {
  absWorkingDir: here,
  outdir: dist,
  outbase: "src",
  bundle: true,
  minify: true,
  target,
  charset: "utf8",
  legalComments: "none", // licenses.txt has them
  metafile: true,
  entryNames: "assets/[name]-[hash]",
  chunkNames: "assets/[name]-[hash]",
  assetNames: "assets/[name]-[hash]",
  define: { "process.env.NODE_ENV": '"production"' },
  logLevel: "warning",
};

// sources is the SHA-256 of every file of this folder but node_modules: for each, in the order of the bytes of its path
// (with "/"), the path, a NUL, the SHA-256 of the content in hexadecimal, and a newline.
export async function sources() {
  const files = [];
  async function walk(folder) {
    for (const e of await readdir(path.join(here, folder), { withFileTypes: true })) {
      const name = folder === "" ? e.name : `${folder}/${e.name}`;
      if (name === "node_modules") continue;
      if (e.isDirectory()) await walk(name);
      else files.push(name);
    }
  }
  await walk("");
  files.sort((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b)));
  const all = createHash("sha256");
  for (const name of files) {
    const content = await readFile(path.join(here, name));
    all.update(`${name}\0${createHash("sha256").update(content).digest("hex")}\n`);
  }
  return all.digest("hex");
}

// licenses returns the terms of every package that is part of the output, as they ask for.
async function licenses(inputs) {
  const packages = new Set();
  for (const input of inputs) {
    const m = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(input);
    if (m) packages.add(m[1]);
  }
  const out = [];
  for (const name of [...packages].sort()) {
    const folder = path.join(here, "node_modules", name);
    const about = JSON.parse(await readFile(path.join(folder, "package.json"), "utf8"));
    const file = (await readdir(folder)).sort().find((f) => /^licen[cs]e/i.test(f));
    const text = file ? await readFile(path.join(folder, file), "utf8") : `License: ${about.license}\n`;
    out.push(`${name} ${about.version}\n\n${text.trim()}\n`);
  }
  return out.join(`\n${"-".repeat(80)}\n\n`);
}

async function build() {
  await rm(dist, { recursive: true, force: true });
  await mkdir(dist, { recursive: true });
  const pages = await esbuild.build({ ...common, entryPoints: { app: "src/main.tsx" }, format: "esm", splitting: true, jsx: "automatic" });
  // The theme is chosen before anything is painted, so by a script that is not a module.
  const rest = await esbuild.build({ ...common, entryPoints: { theme: "src/theme-first.ts", style: "src/style/main.css" }, format: "iife" });
  const outputs = { ...pages.metafile.outputs, ...rest.metafile.outputs };
  const inDist = (f) => path.relative(dist, path.resolve(here, f)).split(path.sep).join("/");
  const of = (entry) => {
    const found = Object.keys(outputs).find((f) => outputs[f].entryPoint === entry);
    if (!found) throw new Error(`nothing was built of ${entry}`);
    return found;
  };
  const app = of("src/main.tsx");
  const preload = outputs[app].imports.filter((i) => i.kind === "import-statement").map((i) => inDist(i.path)).sort();
  let html = await readFile(path.join(here, "src", "index.html"), "utf8");
  for (const [name, value] of Object.entries({
    theme: `/${inDist(of("src/theme-first.ts"))}`,
    style: `/${inDist(of("src/style/main.css"))}`,
    app: `/${inDist(app)}`,
    preload: preload.map((f) => `<link rel="modulepreload" href="/${f}">`).join("\n    "),
  })) {
    html = html.replaceAll(`{{${name}}}`, value);
  }
  const icon = await readFile(path.join(here, "src", "icon.svg"));
  const iconName = `assets/icon-${createHash("sha256").update(icon).digest("hex").slice(0, 8).toUpperCase()}.svg`;
  await cp(path.join(here, "src", "icon.svg"), path.join(dist, iconName));
  html = html.replaceAll("{{icon}}", `/${iconName}`);
  await writeFile(path.join(dist, "index.html"), html);
  await writeFile(path.join(dist, "licenses.txt"), await licenses(Object.values(outputs).flatMap((o) => Object.keys(o.inputs))));
  await writeFile(path.join(dist, "manifest.json"), `${JSON.stringify({ sources: await sources() }, null, 2)}\n`);
  return outputs;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  for (const [file, o] of Object.entries(await build()).sort()) {
    console.log(`${String(o.bytes).padStart(8)}  ${path.basename(file)}`);
  }
}

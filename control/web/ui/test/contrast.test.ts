import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";

declare const HERE: string;

// tokens reads the colours of both themes from the style sheet that is served.
function tokens(): Map<string, [light: string, dark: string]> {
  const css = readFileSync(join(HERE, "src/style/tokens.css"), "utf8");
  const out = new Map<string, [string, string]>();
  for (const m of css.matchAll(/(--[a-z-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);/g)) out.set(m[1]!, [m[2]!, m[3]!]);
  return out;
}

// luminance and contrast are those of WCAG 2.2.
function luminance(hex: string): number {
  const [r, g, b] = [1, 3, 5].map((i) => {
    const c = parseInt(hex.slice(i, i + 2), 16) / 255;
    return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
  }) as [number, number, number];
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function contrast(a: string, b: string): number {
  const [x, y] = [luminance(a), luminance(b)].sort((p, q) => q - p) as [number, number];
  return (x + 0.05) / (y + 0.05);
}

test("contrast itself", () => {
  assert.equal(contrast("#000000", "#ffffff"), 21);
  assert.equal(Math.round(contrast("#767676", "#ffffff") * 100), 454);
});

test("text is readable on whatever it stands on, in both themes", () => {
  const grounds = ["--ground", "--surface", "--raised", "--sunken", "--hover"];
  const pairs: [string, string[], number][] = [
    ["--text", [...grounds, "--good-soft", "--bad-soft", "--warn-soft", "--info-soft", "--stage-soft", "--accent-soft"], 4.5],
    ["--quiet", grounds, 4.5],
    ["--accent", [...grounds, "--accent-soft"], 4.5],
    ["--on-accent", ["--accent"], 4.5],
    ...["good", "bad", "warn", "info", "stage"].map((n): [string, string[], number] => [`--${n}`, [...grounds, `--${n}-soft`], 4.5]),
    ["--edge", ["--ground", "--surface", "--raised"], 3],
  ];
  const all = tokens();
  for (const [ink, on, least] of pairs) {
    for (const ground of on) {
      for (const i of [0, 1] as const) {
        const [a, b] = [all.get(ink)?.[i], all.get(ground)?.[i]];
        assert.ok(a && b, `${ink} or ${ground} is no colour`);
        const c = contrast(a, b);
        assert.ok(c >= least, `${ink} ${a} on ${ground} ${b} (${i ? "dark" : "light"}): ${c.toFixed(2)}, want ${least}`);
      }
    }
  }
});

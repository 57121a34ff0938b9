import assert from "node:assert/strict";
import { test } from "node:test";
import { ago, bytes, counted, plain, shortened, visible } from "../src/text.ts";

test("what cannot be seen, or turns the text, is shown by signs", () => {
  const rows: [string, string][] = [
    ["shop/web", "shop/web"],
    ["", ""],
    ["naïve 数据库 базаданных", "naïve 数据库 базаданных"],
    ["שלום", "שלום"], // letters that run from the right are letters
    ["a\nb", "a[↵]b"],
    ["a\tb\r", "a[⇥]b[U+000D]"],
    ["\u0000\u001b[31m", "[U+0000][U+001B][31m"],
    ["abc\u202Etxt.exe", "abc[U+202E]txt.exe"],
    ["\u2066x\u2069", "[U+2066]x[U+2069]"],
    ["pay\u200Bpal", "pay[U+200B]pal"],
    ["x\uFEFF", "x[U+FEFF]"],
    ["a\u2028b\u2029c", "a[U+2028]b[U+2029]c"],
    ["a\u00A0b\u3000c", "a[U+00A0]b[U+3000]c"],
    [" a b ", "[␣]a b[␣]"],
    ["a  b", "a[␣] b"], // HTML would show one
    ["\uDB40\uDC41", "[U+E0041]"], // a tag
    ["\uD800", "[U+D800]"], // half of a pair
    ["\uFE0F\u115F\u3164", "[U+FE0F][U+115F][U+3164]"],
    ["<img src=x onerror=alert(1)>", "<img src=x onerror=alert(1)>"],
  ];
  for (const [given, want] of rows) assert.equal(plain(given), want, JSON.stringify(given));
});

test("no sign is lost, and nothing that is not one is left", () => {
  for (let n = 0; n < 0x11000; n++) {
    const c = String.fromCodePoint(n);
    const shown = visible(`x${c}x`);
    if (/[\p{C}\p{Zl}\p{Zp}]|\p{Default_Ignorable_Code_Point}/u.test(c)) {
      assert.equal(shown.length, 3, `U+${n.toString(16)}`);
      assert.notEqual(typeof shown[1], "string");
    } else if (n !== 0x20 && !/\p{Zs}/u.test(c)) assert.deepEqual(shown, [`x${c}x`]);
  }
});

test("what is long is shortened in its middle, by whole code points", () => {
  assert.equal(shortened("abcdef", 6), "abcdef");
  assert.equal(shortened("abcdefgh", 6), "abc…gh");
  assert.equal(shortened("😀".repeat(9), 4), "😀😀…😀");
  assert.equal(Array.from(shortened("x".repeat(500), 64)).length, 64);
});

test("numbers, sizes and times", () => {
  assert.equal(counted(1, "rule"), "1 rule");
  assert.equal(counted(1234, "policy", "policies"), "1,234 policies");
  assert.equal(bytes(1023), "1023 B");
  assert.equal(bytes(1536), "1.50 KiB");
  const now = Date.parse("2026-01-02T00:00:00Z");
  const rows: [string | undefined, string][] = [
    [undefined, ""],
    ["", ""],
    ["0001-01-01T00:00:00Z", ""], // Go's zero time
    ["not a time", ""],
    ["2026-01-02T00:00:09Z", "just now"], // a clock that is ahead
    ["2026-01-01T23:59:30Z", "30 s ago"],
    ["2026-01-01T23:30:00Z", "30 min ago"],
    ["2026-01-01T02:00:00Z", "22 h ago"],
    ["2025-12-20T00:00:00Z", "13 d ago"],
  ];
  for (const [time, want] of rows) assert.equal(ago(time, now), want, time);
});

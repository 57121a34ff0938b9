import assert from "node:assert/strict";
import { test } from "node:test";
import { Use } from "../src/use.ts";

test("only use keeps a session, and the server hears of it", () => {
  const u = new Use(0);
  assert.equal(u.isUsed(59_000), true);
  assert.equal(u.isUsed(60_000), false, "what is asked now is asked by the page itself");
  u.asked(100_000);
  assert.equal(u.isUsed(100_000), false, "to ask is not to use");
  assert.equal(u.use(110_000), false, "it was asked a moment ago");
  assert.equal(u.isUsed(110_000), true);
  assert.equal(u.use(400_000), true, "nobody has asked for five minutes");
  assert.equal(u.use(400_001), false, "once is enough");
});

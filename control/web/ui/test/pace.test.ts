import assert from "node:assert/strict";
import { test } from "node:test";
import { revisionOf } from "../src/revision.ts";
import { Paced } from "../src/pace.ts";

const turn = () => new Promise<void>((f) => setImmediate(f));

// clock is one that stands, until it is told to go on.
function clock() {
  const rests: { f: () => void; ms: number }[] = [];
  const c = {
    time: 0,
    now: () => c.time,
    later: (f: () => void, ms: number) => {
      rests.push({ f, ms });
    },
    // rested ends the one rest that there is, and says how long it was.
    rested: async () => {
      assert.equal(rests.length, 1);
      const { f, ms } = rests.pop()!;
      f();
      await turn();
      return ms;
    },
  };
  return c;
}

test("work is done once for all that is asked while it is done, and rests in between", async () => {
  let runs = 0;
  const ends: (() => void)[] = [];
  const c = clock();
  const p = new Paced(
    () => {
      runs++;
      return new Promise<void>((f) => ends.push(f));
    },
    1000,
    c,
  );
  p.ask();
  p.ask();
  p.ask();
  assert.equal(runs, 1);
  c.time = 400;
  ends.shift()!();
  await turn();
  assert.equal(runs, 1, "it rests first");
  assert.equal(await c.rested(), 1000);
  assert.equal(runs, 2, "what was asked for meanwhile");
  c.time = 5400;
  ends.shift()!();
  await turn();
  assert.equal(await c.rested(), 10_000, "what takes long is done less often");
  assert.equal(runs, 2, "nothing more was asked for");
  p.ask();
  assert.equal(runs, 3);
});

test("work that fails is done again when it is asked for", async () => {
  let runs = 0;
  const c = clock();
  const p = new Paced(
    () => {
      runs++;
      return Promise.reject(new Error("no"));
    },
    0,
    c,
  );
  p.ask();
  await turn();
  await c.rested();
  p.ask();
  await turn();
  assert.equal(runs, 2);
});

test("the clock of the system is called as browsers want it", async () => {
  const set = globalThis.setTimeout;
  let self: unknown = "not called";
  globalThis.setTimeout = function (this: unknown, f: () => void) {
    self = this;
    f();
  } as typeof setTimeout;
  try {
    let runs = 0;
    const p = new Paced(() => Promise.resolve(runs++), 0);
    p.ask();
    await turn();
    p.ask();
    await turn();
    assert.equal(runs, 2);
  } finally {
    globalThis.setTimeout = set;
  }
  assert.equal(self, undefined);
});

test("revisions", () => {
  assert.equal(revisionOf('{"revision":"7"}'), "7");
  for (const bad of ["", "null", "{", "{}", '{"revision":7}', undefined]) assert.equal(revisionOf(bad), undefined);
});

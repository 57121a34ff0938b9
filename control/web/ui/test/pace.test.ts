import assert from "node:assert/strict";
import { test } from "node:test";
import { revisionOf } from "../src/revision.ts";
import { Paced } from "../src/pace.ts";

const turn = () => new Promise<void>((f) => setImmediate(f));

test("work is done once for all that is asked while it is done, and rests in between", async () => {
  let runs = 0;
  const rests: (() => void)[] = [];
  const ends: (() => void)[] = [];
  const p = new Paced(
    () => {
      runs++;
      return new Promise<void>((f) => ends.push(f));
    },
    1000,
    (f, ms) => {
      assert.equal(ms, 1000);
      rests.push(f);
    },
  );
  p.ask();
  p.ask();
  p.ask();
  assert.equal(runs, 1);
  ends.shift()!();
  await turn();
  assert.equal(runs, 1, "it rests first");
  rests.shift()!();
  await turn();
  assert.equal(runs, 2, "what was asked for meanwhile");
  ends.shift()!();
  await turn();
  rests.shift()!();
  await turn();
  assert.equal(runs, 2, "nothing more was asked for");
  p.ask();
  assert.equal(runs, 3);
});

test("work that fails is done again when it is asked for", async () => {
  let runs = 0;
  const p = new Paced(
    () => {
      runs++;
      return Promise.reject(new Error("no"));
    },
    0,
    (f) => f(),
  );
  p.ask();
  await turn();
  p.ask();
  await turn();
  assert.equal(runs, 2);
});

test("revisions", () => {
  assert.equal(revisionOf('{"revision":"7"}'), "7");
  for (const bad of ["", "null", "{", "{}", '{"revision":7}', undefined]) assert.equal(revisionOf(bad), undefined);
});

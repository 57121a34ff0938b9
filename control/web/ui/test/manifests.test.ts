import assert from "node:assert/strict";
import { test } from "node:test";
import { together } from "../src/preview/answer.ts";
import { added, type Draft, isTooLarge, joined, most, sizeOf } from "../src/preview/manifests.ts";

const file = (name: string, content: string | Uint8Array) => {
  const bytes = typeof content === "string" ? new TextEncoder().encode(content) : content;
  return { name, size: bytes.length, arrayBuffer: () => Promise.resolve(bytes.slice().buffer as ArrayBuffer) };
};
const none: Draft = { text: "", files: [] };

test("files are read strictly, and what cannot be taken is told", async () => {
  const got = await added({ text: "a: 1", files: [] }, [file("a.yaml", "kind: A"), file("b.JSON", "{}"), file("c.txt", "x"), file("d.yml", new Uint8Array([0xff, 0xfe])), file("a.yaml", "kind: B")]);
  assert.deepEqual(got.faults.map((f) => f.name), ["c.txt", "d.yml"]);
  assert.equal(joined(got.draft), "a: 1\n---\nkind: B\n---\n{}");
});

test("all together have a bound, and a file that takes the place of another does not count twice", async () => {
  const half = "x".repeat(most / 2);
  const one = await added(none, [file("a.yaml", half), file("b.yaml", half)]);
  assert.equal(sizeOf(one.draft), most);
  assert.deepEqual(one.faults, []);
  const two = await added(one.draft, [file("c.yaml", "y"), file("a.yaml", half)]);
  assert.deepEqual(two.faults.map((f) => f.name), ["c.yaml"]);
});

test("what counts is what is sent", () => {
  assert.equal(isTooLarge({ text: "x".repeat(most - 100), files: [] }), false);
  assert.equal(isTooLarge({ text: "x" + "\n".repeat(most * 0.6), files: [] }), true); // two characters each
});

test("size is in bytes", () => assert.equal(sizeOf({ text: "ä→", files: [] }), 5));

test("what changes alike is one line", () => {
  assert.deepEqual(together([{ traffic: "TCP/1", before: "allow", after: "drop" }, { traffic: "UDP", before: "drop", after: "allow" }, { traffic: "ICMP", before: "allow", after: "drop" }]), [
    { traffic: ["TCP/1", "ICMP"], before: "allow", after: "drop" },
    { traffic: ["UDP"], before: "drop", after: "allow" },
  ]);
});

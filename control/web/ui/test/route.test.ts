import assert from "node:assert/strict";
import { test } from "node:test";
import { search, statusOf } from "../src/api.ts";
import { endOf, groupName, idOf, idOfEnd, pathOf, policyOf, shownOf } from "../src/ids.ts";
import { changed } from "../src/query.ts";

test("an ID survives being a path", () => {
  for (const id of ["annp/shop/egress", "acnp/a b", "pod/x/<b>%2F?#&", "cnp/\u202Eabc", "ee/ns/a/b", "pod/ns/数据"]) {
    assert.equal(idOf("policies", pathOf("policies", id)), id);
    assert.equal(new URL(pathOf("policies", id), "http://x").search, "");
  }
  assert.equal(idOf("policies", "/policies/%"), "");
  assert.equal(idOf("policies", "/workloads/pod/a/b"), "");
});

test("workloads as ends of a flow", () => {
  const rows: [string, string][] = [
    ["pod/shop/web", "shop/web"],
    ["node/n1", "node:n1"],
    ["ee/prod/virtualmachine-i-1", "vm:prod/i-1"],
    ["ee/dc/old", "ee:dc/old"],
    ["vm/prod/i-1", "vm:prod/i-1"],
    ["service/shop/db", ""],
    ["", ""],
  ];
  for (const [id, want] of rows) assert.equal(endOf(id), want, id);
});

test("groups that are one workload", () => {
  assert.equal(groupName({ id: "ee/prod/virtualmachine-i-1", name: "prod/virtualmachine-i-1" }), "prod/i-1");
  assert.equal(groupName({ id: "ee/dc/old", name: "dc/old" }), "dc/old");
  assert.equal(groupName({ id: "ns/ee", name: "ee" }), "ee");
});

test("workloads that a change of access names", () => {
  const rows: [string, string][] = [
    ["shop/web", "pod/shop/web"],
    ["node:n1", "node/n1"],
    ["ee:prod/virtualmachine-i-1", "ee/prod/virtualmachine-i-1"],
    ["service:shop/db", "service/shop/db"],
    ["pod/web", "pod/pod/web"],
  ];
  for (const [end, want] of rows) assert.equal(idOfEnd(end), want, end);
});

test("the policy of a decision", () => {
  const d = { verdict: "Drop" as const, reason: "rule", rule: "r" };
  assert.equal(policyOf({ ...d, kind: "annp", namespace: "shop", policy: "egress" }), "annp/shop/egress");
  assert.equal(policyOf({ ...d, kind: "acnp", policy: "all" }), "acnp/all");
  assert.equal(policyOf({ ...d, policy: "", reason: "default" }), "");
});

test("queries: what the server is asked, and what the address says", () => {
  assert.equal(search({ port: ["TCP/443", "UDP/53"], by: "label:a=b", open: false, search: "" }), "?by=label%3Aa%3Db&port=TCP%2F443&port=UDP%2F53");
  assert.equal(search({}), "");
  assert.equal(changed("?a=1&b=2", { a: "", c: ["x/y", "z:w"] }), "?b=2&c=x/y&c=z:w");
  assert.equal(changed("?a=1", { a: "" }), "");
  assert.equal(new URLSearchParams(changed("", { s: "100%25 & más+=#" })).get("s"), "100%25 & más+=#");
});

test("errors are told whatever they look like", () => {
  const rows: [number, string, string, string, string][] = [
    [403, "", '{"kind":"Status","message":"pods is forbidden","reason":"Forbidden","code":403}', "pods is forbidden", "Forbidden"],
    [502, "Bad Gateway", "<html>nginx</html>", "<html>nginx</html>", ""],
    [500, "Internal", "", "Internal", ""],
    [500, "", "null", "the server answered 500", ""],
    [500, "Internal", '{"message":""}', "Internal", ""],
    [500, "", '{"message":5}', "the server answered 500", ""],
  ];
  for (const [code, text, body, message, reason] of rows) {
    const e = statusOf(code, text, body);
    assert.deepEqual([e.code, e.message, e.reason], [code, message, reason]);
  }
});

test("a VM is called by its own name", () => {
  assert.deepEqual(shownOf("ee/prod/virtualmachine-i-1"), { kind: "vm", name: "prod/i-1" });
  assert.deepEqual(shownOf("ee/dc/old"), { kind: "ee", name: "dc/old" });
  assert.deepEqual(shownOf("pod/shop/web"), { kind: "pod", name: "shop/web" });
  assert.deepEqual(shownOf("node/n1"), { kind: "node", name: "n1" });
});

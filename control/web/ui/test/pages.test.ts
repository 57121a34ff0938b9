import assert from "node:assert/strict";
import { test } from "node:test";
import { rowsOf } from "../src/data.ts";
import { healthOf } from "../src/health.ts";
import { searchOf } from "../src/ids.ts";
import { nextOf } from "../src/next.ts";
import { byTier } from "../src/steps.ts";
import type { Account, Step } from "../src/views.ts";

test("after the login one stays on this console", () => {
  const rows: [string, string][] = [
    ["/policies?tier=100", "/policies?tier=100"],
    ["/explain?from=a/b&to=//c", "/explain?from=a/b&to=//c"],
    ["", "/map"],
    ["//evil.example", "/map"],
    ["/\\evil.example", "/map"],
    ["https://evil.example", "/map"],
    ["javascript:alert(1)", "/map"],
    ["/login?next=/login", "/map"],
    ["/api/session", "/map"],
    ["\t//evil.example", "/map"],
    ["/\t/evil.example", "/map"],
    ["/x/..//evil.example", "/map"],
    ["/", "/"],
  ];
  for (const [asked, want] of rows) assert.equal(nextOf(asked), want, asked);
});

test("steps are told by tier, and what is hidden tells none", () => {
  const step = (tierNumber: number | undefined, hidden = false): Step => ({ ...(tierNumber === undefined ? {} : { tierNumber, tier: `t${tierNumber}` }), direction: "ingress", action: "Drop", outcome: "not matched", ...(hidden ? { hidden } : {}) });
  const got = byTier([step(50), step(50), step(undefined, true), step(undefined, true), step(50), step(250)]).map((t) => [t.hidden ? "hidden" : t.number, t.steps.length]);
  assert.deepEqual(got, [[50, 2], ["hidden", 2], [50, 1], [250, 1]]);
  assert.deepEqual(byTier([]), []);
});

test("an account is as well as the worst of it", () => {
  const account = (a: Partial<Account>): Account => ({ namespace: "n", name: "a", provider: "AWS", vms: 0, regions: null, targets: null, ...a });
  const target = { name: "t", phase: "Synced", quotas: null };
  const rows: [Account, string][] = [
    [account({}), "good"],
    [account({ problem: "no secret" }), "bad"],
    [account({ regions: [{ name: "r", error: "throttled" }] }), "bad"],
    [account({ targets: [{ ...target, phase: "Failed" }] }), "bad"],
    [account({ targets: [{ ...target, quotas: [{ name: "q", used: 54, of: 60 }] }] }), "warn"],
    [account({ targets: [{ ...target, quotas: [{ name: "q", used: 53, of: 60 }] }] }), "good"],
    [account({ targets: [{ ...target, quotas: [{ name: "q", used: 0, of: 0 }] }] }), "good"],
    [account({ problem: "x", targets: [{ ...target, quotas: [{ name: "q", used: 60, of: 60 }] }] }), "bad"],
  ];
  for (const [a, want] of rows) assert.equal(healthOf(a), want, JSON.stringify(a));
});

test("a row that two pages have stands once", () => {
  const row = (id: string, n: number) => ({ id, n });
  assert.deepEqual(rowsOf([{ items: [row("a", 1), row("b", 1)] }, { items: null }, { items: [row("b", 2), row("c", 2)] }]), [row("a", 1), row("b", 1), row("c", 2)]);
});

test("what is looked for when an end is typed", () => {
  assert.equal(searchOf("vm:prod/i-1"), "prod/i-1");
  assert.equal(searchOf(" shop/web "), "shop/web");
  assert.equal(searchOf("node:"), "");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { calledOf, labelsOf, networkOf, providerOf } from "../src/words.ts";

test("labels of people come first, then tags, then what the importer writes", () => {
  const labels = { "nephe.antrea.io/cloud-region": "eu", "nephe.antrea.io/tag-Role": "web", zone: "a", app: "x" };
  assert.deepEqual(labelsOf(labels), ["app=x", "zone=a", "Role=web", "cloud-region=eu"]);
  assert.deepEqual(labelsOf(null), []);
  assert.equal(calledOf({ "nephe.antrea.io/cloud-vm-name": "web-1" }), "web-1");
  assert.equal(calledOf(undefined), "");
});

test("networks and providers by the names that people use", () => {
  assert.equal(networkOf("/subscriptions/a/providers/microsoft.network/virtualnetworks/core"), "core");
  assert.equal(networkOf("vpc-0aa"), "vpc-0aa");
  assert.equal(networkOf("/"), "/");
  assert.equal(providerOf("aws"), "AWS");
  assert.equal(providerOf("constructor"), "constructor");
});

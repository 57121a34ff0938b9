import assert from "node:assert/strict";
import { test } from "node:test";
import { commandOf, faultOf, parseTraffic, writeTraffic } from "../src/traffic.ts";

test("traffic is read and written alike", () => {
  for (const s of ["TCP/443", "UDP/53", "SCTP/9", "ICMP", "ICMP/8", "ICMP/8/0", "IGMP"]) {
    assert.equal(writeTraffic(parseTraffic(s)), s);
    assert.equal(faultOf(parseTraffic(s)), "", s);
  }
  assert.deepEqual(parseTraffic("tcp/80"), { protocol: "TCP", rest: "80" });
  assert.deepEqual(parseTraffic("443"), { protocol: "TCP", rest: "443" });
});

test("what the server would refuse is told before it is asked", () => {
  for (const s of ["TCP", "TCP/0", "TCP/65536", "TCP/x", "UDP/1-2", "TCP/ 80 80", "ICMP/256", "ICMP/1/2/3", "ICMP/x"]) assert.notEqual(faultOf(parseTraffic(s)), "", s);
});

test("a command is only offered where a shell would read it as it is meant", () => {
  assert.equal(commandOf("shop/web", "vm:prod/i-1", "TCP/22"), "isobar explain shop/web vm:prod/i-1 TCP/22");
  assert.equal(commandOf("shop/web", "10.0.0.1", "TCP/443", "api.example.com"), "isobar explain shop/web 10.0.0.1 TCP/443 --to-name api.example.com");
  assert.equal(commandOf("shop/web", "10.0.0.1", "TCP/443", "a$(x)"), "");
  for (const bad of ["a;rm", "$(x)", "a b", "-f", "", "a\nb", "`x`", "a|b", "\u202Ex", "'"]) assert.equal(commandOf(bad, "x/y", "TCP/1"), "", bad);
});

import { type Account, list } from "./views.ts";

// healthOf is the worst that is known of an account.
export function healthOf(a: Account): "good" | "warn" | "bad" {
  if (a.problem) return "bad";
  const targets = list(a.targets);
  if (list(a.regions).some((r) => r.error) || targets.some((t) => t.error || t.phase === "Failed")) return "bad";
  if (targets.some((t) => list(t.quotas).some((q) => q.of > 0 && q.used >= q.of * 0.9))) return "warn";
  return "good";
}

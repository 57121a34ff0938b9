// What a preview and an apply answer.
import type { Revision } from "../views.ts";

export type Problem = { object: string; field: string; message: string; warning?: boolean };
export type Side = { workloads?: string[] | null; prefixes?: string[] | null; added?: boolean; removed?: boolean };
export type Item = { traffic: string; before: string; after: string };
export type Change = { from: Side; to: Side; gained?: Item[] | null; lost?: Item[] | null; changed?: Item[] | null };
export type Totals = { gained: number; lost: number; changed: number };
export type TargetPlan = {
  name: string;
  error?: string;
  pending?: boolean;
  changes?: { key: string; op: string; text?: string }[] | null;
  refusals?: { policy?: string; rule?: string; workloads?: string[] | null; reason: string; message?: string; limit?: number; need?: number; already?: boolean }[] | null;
  usage?: { quota: string; of?: string; used: number; before: number; limit: number }[] | null;
};
export type Preview = Revision & {
  problems: Problem[] | null;
  changes: Change[] | null;
  totals: Totals;
  targets: TargetPlan[] | null;
  targetsDenied?: string;
};

export type Applied = { items: { id: string; outcome: string; message?: string }[] | null };

export const goodOutcomes: readonly string[] = ["created", "updated", "unchanged"];

// together joins the traffic of items that change alike.
export function together(items: readonly Item[]): { traffic: string[]; before: string; after: string }[] {
  const of = new Map<string, { traffic: string[]; before: string; after: string }>();
  for (const i of items) {
    const key = `${i.before} ${i.after}`;
    const g = of.get(key) ?? { traffic: [], before: i.before, after: i.after };
    g.traffic.push(i.traffic);
    of.set(key, g);
  }
  return [...of.values()];
}

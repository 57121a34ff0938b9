import type { Step } from "./views.ts";

// byTier puts steps, which are in order, into their tiers. A hidden step has no tier to be seen.
export function byTier(steps: readonly Step[]): { number: number; name: string; hidden: boolean; steps: Step[] }[] {
  const out: { number: number; name: string; hidden: boolean; steps: Step[] }[] = [];
  for (const s of steps) {
    const last = out.at(-1);
    const hidden = s.hidden === true;
    if (last && last.hidden === hidden && (hidden || last.number === s.tierNumber)) last.steps.push(s);
    else out.push({ number: s.tierNumber ?? 0, name: s.tier ?? "", hidden, steps: [s] });
  }
  return out;
}

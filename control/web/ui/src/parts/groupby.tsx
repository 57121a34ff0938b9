import { useId } from "react";
import { useMe } from "../data.ts";
import { useQuery } from "../route.ts";
import { plain, shortened } from "../text.ts";
import { list } from "../views.ts";

// GroupBy chooses what the groups of the map and of the matrix are. clears are parameters that name groups, and so mean nothing in others.
export function GroupBy({ clears }: { clears: readonly string[] }) {
  const query = useQuery();
  const me = useMe();
  const id = useId();
  const value = byOf(query.get("by"));
  const labels = list(me?.labels);
  const known = ["namespace", "network", "workload"].includes(value) || labels.some((l) => `label:${l}` === value);
  const shown = (s: string) => plain(shortened(s, 50));
  return (
    <div className="field">
      <label htmlFor={id}>Group by</label>
      <select id={id} value={value} onChange={(e) => query.set({ ...Object.fromEntries(clears.map((c) => [c, ""])), by: e.target.value === "namespace" ? "" : e.target.value }, { add: true })}>
        <option value="namespace">Namespace</option>
        <option value="network">Network</option>
        {!known && <option value={value}>{shown(value)}</option>}
        {labels.length > 0 && (
          <optgroup label="Label">
            {labels.map((l) => (
              <option key={l} value={`label:${l}`}>
                {shown(l)}
              </option>
            ))}
          </optgroup>
        )}
        <option value="workload">Workload</option>
      </select>
    </div>
  );
}

export function byOf(value: string): string {
  return value === "" ? "namespace" : value;
}

// byName is how groups are called.
export function byName(by: string): string {
  if (by.startsWith("label:")) return `label ${plain(shortened(by.slice("label:".length), 40))}`;
  return by;
}

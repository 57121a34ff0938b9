import { useId } from "react";
import { useQuery } from "../route.ts";
import { plain, shortened } from "../text.ts";

// Filter is a choice that is a parameter of the address.
export function Filter({ label, param, options, all = "All" }: { label: string; param: string; options: readonly (readonly [value: string, name: string])[]; all?: string }) {
  const query = useQuery();
  const id = useId();
  const value = query.get(param);
  const known = value === "" || options.some(([v]) => v === value);
  return (
    <div className="field">
      <label htmlFor={id}>{label}</label>
      <select id={id} value={value} onChange={(e) => query.set({ [param]: e.target.value })}>
        <option value="">{all}</option>
        {!known && <option value={value}>{plain(shortened(value, 60))}</option>}
        {options.map(([v, name]) => (
          <option key={v} value={v}>
            {plain(shortened(name, 60))}
          </option>
        ))}
      </select>
    </div>
  );
}

// ClearFilters takes parameters out of the address, where any is there.
export function ClearFilters({ params }: { params: readonly string[] }) {
  const query = useQuery();
  if (params.every((p) => query.get(p) === "")) return null;
  return (
    <button type="button" onClick={() => query.set(Object.fromEntries(params.map((p) => [p, ""])), { add: true })}>
      Clear filters
    </button>
  );
}

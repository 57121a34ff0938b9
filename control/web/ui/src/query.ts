// changed is a query with parameters set, or, where they are empty, taken out.
export function changed(search: string, change: Record<string, string | readonly string[]>): string {
  const params = new URLSearchParams(search);
  for (const [name, value] of Object.entries(change)) {
    params.delete(name);
    for (const v of typeof value === "string" ? [value] : value) if (v !== "") params.append(name, v);
  }
  // Slashes and colons may stand in a query, and are easier to read so.
  const s = params.toString().replaceAll("%2F", "/").replaceAll("%3A", ":");
  return s && `?${s}`;
}

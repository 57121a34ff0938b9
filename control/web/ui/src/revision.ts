// revisionOf reads the data of an event.
export function revisionOf(data: unknown): string | undefined {
  try {
    const r = (JSON.parse(String(data)) as { revision?: unknown } | null)?.revision;
    return typeof r === "string" ? r : undefined;
  } catch {
    return undefined;
  }
}

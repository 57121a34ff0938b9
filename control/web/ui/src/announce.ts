// What changes without being asked for is told to those who do not see it.
const listeners = new Set<(text: string) => void>();

export function announce(text: string) {
  listeners.forEach((f) => f(text));
}

export function onAnnounce(f: (text: string) => void): () => void {
  listeners.add(f);
  return () => listeners.delete(f);
}

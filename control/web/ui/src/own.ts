// own looks a key up that others may have written: of what every object has, such as "constructor", nothing is found.
export function own<T>(of: Readonly<Record<string, T>>, key: string): T | undefined {
  return Object.hasOwn(of, key) ? of[key] : undefined;
}

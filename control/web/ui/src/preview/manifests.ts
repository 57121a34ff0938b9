// The manifests of a preview. They are kept in the memory of the page alone: they may tell more than others should read.

export type File = { name: string; text: string; size: number };
export type Draft = { text: string; files: readonly File[] };

export const most = 1 << 20; // bytes, with all files: what the server takes

let draft: Draft = { text: "", files: [] };

export function kept(): Draft {
  return draft;
}

export function keep(d: Draft) {
  draft = d;
}

const encoder = new TextEncoder();

export function sizeOf(d: Draft): number {
  return d.files.reduce((sum, f) => sum + f.size, encoder.encode(d.text).length);
}

// joined are all manifests as one stream of documents.
export function joined(d: Draft): string {
  return [d.text, ...d.files.map((f) => f.text)].filter((t) => t.trim() !== "").join("\n---\n");
}

// isTooLarge says whether the server would refuse a draft for its size, written as JSON.
export function isTooLarge(d: Draft): boolean {
  const size = sizeOf(d);
  return size > most || (size > most / 2 && encoder.encode(JSON.stringify({ manifests: joined(d), delete: [] })).length > most);
}

// decode reads a file, or says why it cannot be taken.
export function decode(name: string, bytes: Uint8Array): string {
  if (!/\.(ya?ml|json)$/i.test(name)) throw new Error("only .yaml, .yml and .json are read");
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    throw new Error("it is not UTF-8");
  }
}

// added puts files to a draft. A file of a name that is there already takes its place; faults are told by name.
export async function added(d: Draft, files: readonly { name: string; size: number; arrayBuffer(): Promise<ArrayBuffer> }[]): Promise<{ draft: Draft; faults: { name: string; message: string }[] }> {
  const faults: { name: string; message: string }[] = [];
  const of = new Map(d.files.map((f) => [f.name, f]));
  for (const f of files) {
    const others = sizeOf({ text: d.text, files: [...of.values()].filter((o) => o.name !== f.name) });
    try {
      if (f.size + others > most) throw new Error("all manifests together may have 1 MiB");
      const text = decode(f.name, new Uint8Array(await f.arrayBuffer()));
      of.set(f.name, { name: f.name, text, size: f.size });
    } catch (e) {
      faults.push({ name: f.name, message: e instanceof Error ? e.message : String(e) });
    }
  }
  return { draft: { text: d.text, files: [...of.values()] }, faults };
}

// Text that others wrote, made safe to read: what would not be seen, or would turn or break the line, becomes a visible sign.

// Controls, formats (among them whatever turns the direction of text), separators of lines, surrogates without a partner,
// code points for private use or for nothing, whatever is drawn as nothing, and spaces that are not the space.
const special =
  /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}|^ | $| (?= )/gu;

const names: Record<number, string> = {
  0x09: "tab", 0x0a: "newline", 0x0d: "return", 0x1b: "escape", 0x20: "space", 0x7f: "delete", 0xa0: "no-break space", 0xad: "soft hyphen",
  0x61c: "Arabic letter mark", 0x200b: "zero width space", 0x200c: "zero width non-joiner", 0x200d: "zero width joiner",
  0x200e: "left-to-right mark", 0x200f: "right-to-left mark", 0x2028: "line separator", 0x2029: "paragraph separator",
  0x202a: "left-to-right embedding", 0x202b: "right-to-left embedding", 0x202c: "pop directional formatting",
  0x202d: "left-to-right override", 0x202e: "right-to-left override", 0x2060: "word joiner", 0x2066: "left-to-right isolate",
  0x2067: "right-to-left isolate", 0x2068: "first strong isolate", 0x2069: "pop directional isolate", 0xfeff: "byte order mark",
};

export type Sign = { sign: string; title: string };

// signOf returns what stands for a character that cannot be shown.
function signOf(c: string): Sign {
  const n = c.codePointAt(0)!;
  const code = `U+${n.toString(16).toUpperCase().padStart(4, "0")}`;
  const name = names[n];
  const short = n === 0x0a ? "\u21b5" : n === 0x09 ? "\u21e5" : n === 0x20 ? "\u2423" : code;
  return { sign: short, title: name ? `${code} ${name}` : code };
}

// visible cuts s into what is shown as it is and signs for what is not.
export function visible(s: string): (string | Sign)[] {
  const out: (string | Sign)[] = [];
  let end = 0;
  for (const m of s.matchAll(special)) {
    if (m.index > end) out.push(s.slice(end, m.index));
    out.push(signOf(m[0]));
    end = m.index + m[0].length;
  }
  if (end < s.length) out.push(s.slice(end));
  return out;
}

// plain is the same as one string, for titles, labels and whatever else is not a node.
export function plain(s: string): string {
  return visible(s)
    .map((part) => (typeof part === "string" ? part : `[${part.sign}]`))
    .join("");
}

// shortened leaves the middle out of what is longer than max code points.
export function shortened(s: string, max: number): string {
  const points = Array.from(s);
  if (points.length <= max) return s;
  const head = Math.ceil((max - 1) * 0.6);
  return `${points.slice(0, head).join("")}…${points.slice(points.length - (max - 1 - head)).join("")}`;
}

const whole = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });

export function count(n: number): string {
  return whole.format(n);
}

export function roughly(n: number): string {
  return compact.format(n);
}

// counted is "1 rule", "2 rules".
export function counted(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// bytes is n in the units of 1024.
export function bytes(n: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  let i = 0;
  while (n >= 1024 && i < units.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 ? n : n.toPrecision(3)} ${units[i]}`;
}

// ago says how long before now (in milliseconds) a time of RFC 3339 was; "" for no time.
export function ago(time: string | undefined, now: number): string {
  const t = time ? Date.parse(time) : NaN;
  if (Number.isNaN(t) || t <= 0) return "";
  const s = Math.max(0, Math.round((now - t) / 1000));
  if (s < 5) return "just now";
  if (s < 90) return `${s} s ago`;
  if (s < 90 * 60) return `${Math.round(s / 60)} min ago`;
  if (s < 36 * 3600) return `${Math.round(s / 3600)} h ago`;
  return `${Math.round(s / 86400)} d ago`;
}

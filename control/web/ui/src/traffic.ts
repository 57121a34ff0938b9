// Traffic of one flow as one asks for it: TCP/443, UDP/53, ICMP, ICMP/8/0, IGMP.

export const protocols = ["TCP", "UDP", "SCTP", "ICMP", "IGMP"] as const;
export type Protocol = (typeof protocols)[number];
export type Traffic = { protocol: Protocol; rest: string };

export function parseTraffic(s: string): Traffic {
  const i = s.indexOf("/");
  const protocol = (i < 0 ? s : s.slice(0, i)).toUpperCase();
  const known = protocols.find((p) => p === protocol);
  return known ? { protocol: known, rest: i < 0 ? "" : s.slice(i + 1) } : { protocol: "TCP", rest: s };
}

export function writeTraffic({ protocol, rest }: Traffic): string {
  const r = rest.trim();
  return protocol === "IGMP" || r === "" ? protocol : `${protocol}/${r}`;
}

// faultOf says what is wrong with traffic; "" for nothing.
export function faultOf({ protocol, rest }: Traffic): string {
  const r = rest.trim();
  if (protocol === "IGMP") return "";
  if (protocol === "ICMP") {
    const parts = r === "" ? [] : r.split("/");
    return parts.length <= 2 && parts.every((p) => /^\d{1,3}$/.test(p) && Number(p) <= 255) ? "" : "Write a type, or type/code, each from 0 to 255; nothing is 0/0.";
  }
  return /^\d{1,5}$/.test(r) && Number(r) >= 1 && Number(r) <= 65535 ? "" : "Write a port from 1 to 65535.";
}

// commandOf is the same question for a shell; "" where a part of it had better not be pasted.
export function commandOf(from: string, to: string, port: string, name = ""): string {
  const words = [from, to, port, ...(name === "" ? [] : [name])];
  if (!words.every((w) => /^[\p{L}\p{N}_.,:\/@=+-]+$/u.test(w) && !w.startsWith("-"))) return "";
  return `isobar explain ${from} ${to} ${port}${name === "" ? "" : ` --to-name ${name}`}`;
}

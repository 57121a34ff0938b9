// Small signs with words: colour is never all that tells.
import type { ReactNode } from "react";
import { own } from "../own.ts";
import { Icon } from "./icon.tsx";
import { Text } from "./text.tsx";

const verdicts: Record<string, [tone: string, icon: string]> = {
  Allow: ["good", "check"],
  Drop: ["bad", "cross"],
  Reject: ["bad", "barred"],
  Pass: ["info", "pass"],
};

export function Verdict({ of, big = false }: { of: string; big?: boolean }) {
  const [tone, icon] = own(verdicts, of) ?? ["quiet", "dots"];
  return (
    <span className={`badge ${tone} ${big ? "big" : ""}`}>
      <Icon name={icon} />
      {of}
    </span>
  );
}

export function Badge({ tone = "quiet", icon, children, title }: { tone?: "good" | "bad" | "warn" | "info" | "stage" | "quiet"; icon?: string; children: ReactNode; title?: string }) {
  return (
    <span className={`badge ${tone}`} title={title}>
      {icon && <Icon name={icon} />}
      {children}
    </span>
  );
}

const phases: Record<string, ["good" | "bad" | "warn" | "info" | "quiet", string]> = {
  realized: ["good", "check"],
  synced: ["good", "check"],
  enforced: ["good", "check"],
  realizing: ["info", "dots"],
  pending: ["info", "dots"],
  held: ["warn", "pause"],
  failed: ["bad", "warn"],
  none: ["quiet", "dash"],
};

// Phase shows how far something is enforced.
export function Phase({ of }: { of: string }) {
  if (of === "") return <span className="quiet-text">–</span>;
  const [tone, icon] = own(phases, of.toLowerCase()) ?? ["quiet", "dots"];
  return (
    <Badge tone={tone} icon={icon}>
      <Text>{of.charAt(0).toUpperCase() + of.slice(1)}</Text>
    </Badge>
  );
}

import { Badge } from "./badges.tsx";

// Isolation says in which directions what no rule decides is dropped.
export function Isolation({ ingress, egress }: { ingress: boolean; egress: boolean }) {
  if (!ingress && !egress) return <span className="quiet-text">no</span>;
  const words = ingress && egress ? "both" : ingress ? "ingress" : "egress";
  return <Badge title={`What no rule allows is dropped: ${words === "both" ? "ingress and egress" : words}`}>{words}</Badge>;
}

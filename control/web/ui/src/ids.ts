// IDs of workloads and policies, as paths of pages and as ends of a flow.
import { own } from "./own.ts";
import type { Decision } from "./views.ts";

// pathOf is the page of an ID: each of its parts is a part of the path.
export function pathOf(page: "policies" | "workloads", id: string): string {
  return `/${page}/${id.split("/").map(encodeURIComponent).join("/")}`;
}

// idOf is the inverse; "" where the path is not of that page, or cannot be read.
export function idOf(page: "policies" | "workloads", path: string): string {
  const start = `/${page}/`;
  if (!path.startsWith(start)) return "";
  try {
    return path.slice(start.length).split("/").map(decodeURIComponent).join("/");
  } catch {
    return "";
  }
}

// endOf writes a workload as one names it in a flow: shop/web, node:n1, vm:prod/i-1, ee:dc/old. "" where it cannot be an end.
export function endOf(id: string): string {
  const [kind, ...rest] = id.split("/");
  const name = rest.join("/");
  switch (kind) {
    case "pod":
      return name;
    case "node":
      return `node:${name}`;
    case "vm":
      return `vm:${name}`;
    case "ee": {
      const [namespace, ...entity] = rest;
      const vm = /^virtualmachine-(.+)$/s.exec(entity.join("/"));
      return vm ? `vm:${namespace}/${vm[1]}` : `ee:${name}`;
    }
  }
  return "";
}

// idOfEnd is the ID of a workload that a change of access names: shop/web, node:n1, ee:prod/virtualmachine-i-1.
export function idOfEnd(end: string): string {
  const m = /^([a-z]+):(.+)$/s.exec(end);
  return m ? `${m[1]}/${m[2]}` : `pod/${end}`;
}

// shownOf is how a workload is called: a VM that a cloud tells of by its own name, not by that of the entity which stands for it.
export function shownOf(id: string): { kind: string; name: string } {
  const end = endOf(id);
  if (end.startsWith("vm:")) return { kind: "vm", name: end.slice(3) };
  return { kind: id.split("/", 1)[0]!, name: nameOf(id) };
}

// groupName is how a group of workloads is called: one of a VM alone as the VM is.
export function groupName(g: { id: string; name: string }): string {
  return g.id.startsWith("ee/") ? shownOf(g.id).name : g.name;
}

// nameOf is an ID without its kind.
export function nameOf(id: string): string {
  const i = id.indexOf("/");
  return i < 0 ? id : id.slice(i + 1);
}

// policyOf is the ID of the policy that decided; "" where none did.
export function policyOf(d: Decision): string {
  if (!d.kind || !d.policy) return "";
  return d.namespace ? `${d.kind}/${d.namespace}/${d.policy}` : `${d.kind}/${d.policy}`;
}

// What the short form of a kind stands for.
export const kinds: Record<string, string> = {
  networkpolicy: "NetworkPolicy",
  annp: "Antrea NetworkPolicy",
  acnp: "Antrea ClusterNetworkPolicy",
  cnp: "ClusterNetworkPolicy",
  anp: "AdminNetworkPolicy",
  banp: "BaselineAdminNetworkPolicy",
};

export function kindName(kind: string): string {
  return own(kinds, kind) ?? kind;
}

// searchOf is what to look for when one has typed the name of an end.
export function searchOf(typed: string): string {
  return typed.trim().replace(/^(vm|node|ee|pod):/, "");
}

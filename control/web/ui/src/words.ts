import { own } from "./own.ts";
import type { WorkloadKind } from "./views.ts";

export const kindNames: Record<WorkloadKind, string> = { pod: "Pod", vm: "VM", node: "Node", external: "External", service: "Service" };

// What an importer of VMs writes into labels.
const imported = "nephe.antrea.io/";

// calledOf is the name that a VM has in its cloud, where that is not its ID; "" without one.
export function calledOf(labels: Record<string, string> | null | undefined): string {
  return labels?.[`${imported}cloud-vm-name`] ?? "";
}

// sorted are labels with those first that people wrote, then the tags of a cloud.
export function sorted(labels: Record<string, string> | null | undefined): [key: string, value: string][] {
  const rank = (key: string) => (key.startsWith(`${imported}tag-`) ? 1 : key.startsWith(imported) ? 2 : 0);
  return Object.entries(labels ?? {}).sort(([a], [b]) => rank(a) - rank(b) || (a < b ? -1 : 1));
}

// labelsOf are labels as a list has room for them: those that are imported without what all of them begin with.
export function labelsOf(labels: Record<string, string> | null | undefined): string[] {
  return sorted(labels).map(([key, value]) => `${key.startsWith(imported) ? key.slice(imported.length).replace(/^tag-/, "") : key}=${value}`);
}

// networkOf is the last part of the name that a cloud gives a network.
export function networkOf(name: string): string {
  return name.startsWith("/") ? (name.split("/").findLast((part) => part !== "") ?? name) : name;
}

const providers: Record<string, string> = { aws: "AWS", azure: "Azure" };

export function providerOf(name: string): string {
  return own(providers, name.toLowerCase()) ?? name;
}

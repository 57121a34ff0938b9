import { own } from "./own.ts";
import type { WorkloadKind } from "./views.ts";

export const kindNames: Record<WorkloadKind, string> = { pod: "Pod", vm: "VM", node: "Node", external: "External", service: "Service" };

// What an importer of VMs writes into labels.
const imported = "nephe.antrea.io/";

// calledOf is the name that a VM has in its cloud, where that is not its ID; "" without one.
export function calledOf(labels: Record<string, string> | null | undefined): string {
  return labels?.[`${imported}cloud-vm-name`] ?? "";
}

// labelsOf are labels as a list has room for them: what people wrote first, and tags of a cloud by their own keys.
export function labelsOf(labels: Record<string, string> | null | undefined): string[] {
  const all = Object.entries(labels ?? {});
  const rank = ([key]: [string, string]) => (key.startsWith(`${imported}tag-`) ? 1 : key.startsWith(imported) ? 2 : 0);
  return all
    .sort((a, b) => rank(a) - rank(b) || (a[0] < b[0] ? -1 : 1))
    .map(([key, value]) => `${key.startsWith(imported) ? key.slice(imported.length).replace(/^tag-/, "") : key}=${value}`);
}

// networkOf is the last part of the name that a cloud gives a network.
export function networkOf(name: string): string {
  return name.startsWith("/") ? (name.split("/").findLast((part) => part !== "") ?? name) : name;
}

const providers: Record<string, string> = { aws: "AWS", azure: "Azure" };

export function providerOf(name: string): string {
  return own(providers, name.toLowerCase()) ?? name;
}

import type { WorkloadKind } from "./views.ts";

export const kindNames: Record<WorkloadKind, string> = { pod: "Pod", vm: "VM", node: "Node", external: "External", service: "Service" };

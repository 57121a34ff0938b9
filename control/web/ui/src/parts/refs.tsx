// Names of policies and workloads, as links to their pages.
import { Link } from "wouter";
import { kindName, nameOf, pathOf, shownOf } from "../ids.ts";
import { Hidden } from "./states.tsx";
import { Text } from "./text.tsx";

export function PolicyRef({ id, max = 64 }: { id: string | undefined; max?: number }) {
  if (!id) return <Hidden>a policy that is not visible to you</Hidden>;
  const kind = id.split("/", 1)[0]!;
  return (
    <Link href={pathOf("policies", id)} className="ref">
      <abbr className="kind" title={kindName(kind)}>
        <Text max={16}>{kind}</Text>
      </abbr>
      <Text max={max}>{nameOf(id)}</Text>
    </Link>
  );
}

export function WorkloadRef({ id, max = 64 }: { id: string | undefined; max?: number }) {
  if (!id || id === "hidden") return <Hidden />;
  const { kind, name } = shownOf(id);
  return (
    <Link href={pathOf("workloads", id)} className="ref">
      <abbr className="kind">
        <Text max={16}>{kind}</Text>
      </abbr>
      <Text max={max}>{name}</Text>
    </Link>
  );
}

import type { ReactNode } from "react";

const shapes: readonly [string, ReactNode][] = [
  ["namespace, Pod", <circle key="c" cx="8" cy="8" r="5.5" className="fill" />],
  ["VM", <rect key="r" x="3" y="3" width="10" height="10" className="fill vm" />],
  ["network, Nodes", <path key="h" d="M5 2.500h6L14 8l-3 5.500H5L2 8z" className="fill" />],
  ["label, others", <path key="d" d="M8 1.500L14.500 8 8 14.500 1.500 8z" className="fill" />],
  ["outside: addresses of no workload", <circle key="o" cx="8" cy="8" r="5.5" className="hollow" />],
  ["not visible to you", <circle key="x" cx="8" cy="8" r="5.5" className="hollow" strokeDasharray="3 2" />],
  ["its workloads reach each other", <g key="s"><circle cx="8" cy="8" r="5.5" className="fill" /><circle cx="8" cy="8" r="1.8" className="hole" /></g>],
  ["left half of the ring: share isolated for ingress", <g key="i"><circle cx="8" cy="8" r="4" className="fill" /><path d="M8 1.500a6.500 6.500 0 000 13" className="ring" /></g>],
  ["right half of the ring: share isolated for egress", <g key="e"><circle cx="8" cy="8" r="4" className="fill" /><path d="M8 1.500a6.500 6.500 0 010 13" className="ring" /></g>],
  ["a rule lets traffic pass", <path key="l" d="M1 8h9M10 5l5 3-5 3z" className="line" />],
  ["nothing decides: it passes by default", <path key="f" d="M1 8h2.500M5.500 8h2.500M10 5l5 3-5 3z" className="line open" />],
];

export function Legend() {
  return (
    <details className="legend card">
      <summary>Legend</summary>
      <ul>
        {shapes.map(([words, shape]) => (
          <li key={words}>
            <svg viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
              {shape}
            </svg>
            {words}
          </li>
        ))}
      </ul>
      <p className="quiet-text">The size of a mark tells how many workloads it has. Each direction of an edge is a line of its own; what lets more pairs pass is thicker.</p>
    </details>
  );
}

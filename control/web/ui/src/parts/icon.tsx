import type { ReactNode } from "react";

// Drawn on 16 × 16, by lines of the text's colour.
const shapes: Record<string, ReactNode> = {
  map: (<><circle cx="3.5" cy="8" r="1.8" /><circle cx="12" cy="3.7" r="1.8" /><circle cx="12" cy="12.3" r="1.8" /><path d="M5.2 7.2l5-2.7M5.2 8.8l5 2.7" /></>),
  matrix: <path d="M2.5 2.5h11v11h-11zM6.2 2.5v11M9.8 2.5v11M2.5 6.2h11M2.5 9.8h11" />,
  explain: <path d="M2 4h5l3 4-3 4H2M10 8h4M12 6l2 2-2 2" />,
  policies: <path d="M8 1.8l5 1.7v4c0 3.4-2.2 5.6-5 6.7-2.8-1.1-5-3.3-5-6.7v-4zM5.7 8l1.7 1.7 3-3.2" />,
  workloads: <path d="M8 1.8l5.5 3v6.4L8 14.2l-5.5-3V4.8zM2.5 4.8L8 7.8l5.5-3M8 7.8v6.4" />,
  preview: <path d="M1.5 8S4 3.7 8 3.7 14.5 8 14.5 8 12 12.3 8 12.3 1.5 8 1.5 8zM8 6.1a1.9 1.9 0 100 3.8 1.9 1.9 0 000-3.8z" />,
  accounts: <path d="M4.5 12.5a3 3 0 01-.3-6 4 4 0 017.7.8 2.6 2.6 0 01-.4 5.2z" />,
  menu: <path d="M2.5 4h11M2.5 8h11M2.5 12h11" />,
  close: <path d="M3.5 3.5l9 9M12.5 3.5l-9 9" />,
  search: <path d="M7 2.5a4.5 4.5 0 100 9 4.5 4.5 0 000-9zM10.3 10.3l3.2 3.2" />,
  swap: <path d="M5 2.5L2.5 5 5 7.5M2.5 5h9M11 8.5l2.5 2.5-2.5 2.5M13.5 11h-9" />,
  sun: <path d="M8 5.2a2.8 2.8 0 100 5.6 2.8 2.8 0 000-5.6zM8 1.5v1.3M8 13.2v1.3M1.5 8h1.3M13.2 8h1.3M3.4 3.4l.9.9M11.7 11.7l.9.9M3.4 12.6l.9-.9M11.7 4.3l.9-.9" />,
  moon: <path d="M13 9.5A5.5 5.5 0 016.5 3 5.5 5.5 0 1013 9.5z" />,
  system: <path d="M2 3h12v8H2zM6 13.5h4M8 11v2.5" />,
  pause: <path d="M5.5 3.5v9M10.5 3.5v9" />,
  play: <path d="M5 3l8 5-8 5z" />,
  check: <path d="M3 8.5l3.2 3.2L13 4.8" />,
  cross: <path d="M4 4l8 8M12 4l-8 8" />,
  barred: <path d="M8 2.5a5.5 5.5 0 100 11 5.5 5.5 0 000-11zM4.2 4.2l7.6 7.6" />,
  down: <path d="M4 6l4 4 4-4" />,
  right: <path d="M6 4l4 4-4 4" />,
  arrow: <path d="M2 8h12M10 4l4 4-4 4" />,
  pass: <path d="M3 4l4 4-4 4M8.5 4l4 4-4 4" />,
  warn: <path d="M8 2.5l6 11H2zM8 6.5v3.2M8 11.6v.1" />,
  dash: <path d="M4 8h8" />,
  dots: <path d="M3.5 8h.01M8 8h.01M12.5 8h.01" />,
  help: <path d="M8 2a6 6 0 100 12A6 6 0 008 2zM6.3 6.3a1.8 1.8 0 113 1.5c-.8.6-1.3.9-1.3 1.7M8 11.5v.1" />,
  user: <path d="M8 2.5a2.6 2.6 0 100 5.2 2.6 2.6 0 000-5.2zM3 13.5c.4-2.8 2.4-4 5-4s4.6 1.2 5 4" />,
  out: <path d="M6.5 2.5h-4v11h4M6.5 8h7M11 5.5L13.5 8 11 10.5" />,
};



// Icon is decoration: what it means is always said in words, too.
export function Icon({ name, className = "" }: { name: string; className?: string }) {
  return (
    <svg className={`icon ${className}`} viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      {shapes[name]}
    </svg>
  );
}

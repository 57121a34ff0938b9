import { useEffect, useId, useRef, useState } from "react";
import { useQuery } from "../route.ts";

// Search is a field whose text is a parameter of the address. "/" leads to it.
export function Search({ label, param = "search", placeholder }: { label: string; param?: string; placeholder?: string }) {
  const query = useQuery();
  const asked = query.get(param);
  const [text, setText] = useState(asked);
  const last = useRef(asked);
  const id = useId();
  // What the address says wins where it has changed by itself: by a link, or by going back.
  if (asked !== last.current && asked !== text) setText(asked);
  last.current = asked;
  useEffect(() => {
    if (text === asked) return;
    const t = setTimeout(() => query.set({ [param]: text }), 200);
    return () => clearTimeout(t);
  }, [text, asked, param, query]);
  return (
    <div className="field search">
      <label htmlFor={id} className="sr">
        {label}
      </label>
      <input id={id} type="search" data-search="" value={text} placeholder={placeholder ?? label} autoComplete="off" spellCheck={false} maxLength={500} onChange={(e) => setText(e.target.value)} />
    </div>
  );
}

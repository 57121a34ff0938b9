import { type ReactNode, useEffect, useRef } from "react";
import { plain } from "../text.ts";
import { Text } from "./text.tsx";

let isFirst = true; // the page that the browser has loaded keeps its own focus

// hasMoved tells that what comes next is no longer the first: its heading takes the focus.
export function hasMoved() {
  isFirst = false;
}

// Page is the frame of each page. Its heading takes the focus after a navigation, so that what comes is read.
export function Page({ title, name, kicker, actions, wide = false, children }: {
  title: string;
  name?: string; // what others named, after the title
  kicker?: ReactNode;
  actions?: ReactNode;
  wide?: boolean;
  children: ReactNode;
}) {
  const heading = useRef<HTMLHeadingElement>(null);
  const full = name ? `${plain(name)} – ${title}` : title;
  useEffect(() => {
    document.title = `${full} – Isobar`;
  }, [full]);
  useEffect(() => {
    if (isFirst) {
      isFirst = false;
      return;
    }
    heading.current?.focus({ preventScroll: true });
    if (!history.state?.keepScroll) window.scrollTo(0, 0);
  }, []);
  return (
    <div className={wide ? "page wide" : "page"}>
      <header className="page-head">
        <div>
          {kicker && <p className="kicker">{kicker}</p>}
          <h1 ref={heading} tabIndex={-1}>
            {name ? <Text>{name}</Text> : title}
          </h1>
        </div>
        {actions && <div className="actions">{actions}</div>}
      </header>
      {children}
    </div>
  );
}

import { type ReactNode, useEffect, useRef } from "react";
import { Icon } from "./icon.tsx";

// SidePanel tells of what is chosen. It takes the focus when a key has opened it; Escape closes it.
export function SidePanel({ kicker, title, name, onClose, takesFocus, children }: {
  kicker: ReactNode;
  title: ReactNode;
  name: string; // of what is shown: another name is another opening
  onClose: () => void;
  takesFocus: boolean;
  children: ReactNode;
}) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (takesFocus) heading.current?.focus({ preventScroll: true });
  }, [name, takesFocus]);
  return (
    <aside
      className="side card"
      aria-label="What is chosen"
      onKeyDown={(e) => {
        if (e.key !== "Escape" || e.defaultPrevented) return;
        e.preventDefault();
        onClose();
      }}
    >
      <header>
        <div>
          <p className="kicker">{kicker}</p>
          <h2 ref={heading} tabIndex={-1}>
            {title}
          </h2>
        </div>
        <button type="button" className="plain" onClick={onClose}>
          <Icon name="close" />
          <span className="sr">Close</span>
        </button>
      </header>
      {children}
    </aside>
  );
}

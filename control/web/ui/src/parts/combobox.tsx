import { type KeyboardEvent, type ReactNode, useEffect, useId, useRef, useState } from "react";
import { plain } from "../text.ts";

export type Option = { value: string; key: string; shown: ReactNode };

type Props = {
  label: string;
  value: string;
  onChange: (value: string) => void;
  options: readonly Option[];
  // note stands below the options: that there are more, or why there are none.
  note?: string | undefined;
  busy?: boolean;
  placeholder?: string;
  hint?: string;
  isSearch?: boolean; // "/" leads here
};

// Combobox is a field of text with completion, after the pattern of the ARIA Authoring Practices (editable, list autocomplete).
//
// Nothing here sets state in an effect whenever the options are others: such an effect runs with each key, its update waits for a
// turn that a burst of keys does not leave, and from the fifty-first on React takes that for a loop and throws.
export function Combobox({ label, value, onChange, options, note, busy = false, placeholder, hint, isSearch = false }: Props) {
  const id = useId();
  const [open, setOpen] = useState(false);
  const [chosen, setChosen] = useState<string>(); // the key of the option that the arrows have led to
  const listbox = useRef<HTMLUListElement>(null);
  const isShown = open && (options.length > 0 || note !== undefined);
  const active = isShown ? options.findIndex((o) => o.key === chosen) : -1;

  useEffect(() => {
    if (active >= 0) listbox.current?.children[active]?.scrollIntoView({ block: "nearest" });
  }, [active]);

  function choose(o: Option) {
    onChange(o.value);
    setOpen(false);
    setChosen(undefined);
  }

  function press(e: KeyboardEvent<HTMLInputElement>) {
    if (e.nativeEvent.isComposing) return;
    switch (e.key) {
      case "ArrowDown":
      case "ArrowUp": {
        e.preventDefault();
        setOpen(true);
        if (e.altKey || options.length === 0) return;
        const step = e.key === "ArrowDown" ? 1 : -1;
        setChosen(options[active < 0 ? (step > 0 ? 0 : options.length - 1) : (active + step + options.length) % options.length]!.key);
        return;
      }
      case "Enter":
        if (active >= 0) {
          e.preventDefault();
          choose(options[active]!);
        } else setOpen(false);
        return;
      case "Escape":
        if (!isShown) return;
        e.preventDefault();
        e.stopPropagation();
        setOpen(false);
        setChosen(undefined);
        return;
      case "Tab":
        setOpen(false);
    }
  }

  return (
    <div className="field combobox">
      <label htmlFor={id}>{label}</label>
      <input
        id={id}
        type="text"
        role="combobox"
        aria-autocomplete="list"
        aria-expanded={isShown}
        aria-controls={`${id}-list`}
        aria-activedescendant={active >= 0 ? `${id}-${active}` : undefined}
        aria-describedby={hint ? `${id}-hint` : undefined}
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
        maxLength={800}
        placeholder={placeholder}
        data-search={isSearch ? "" : undefined}
        value={value}
        onChange={(e) => {
          onChange(e.target.value);
          setOpen(true);
          setChosen(undefined);
        }}
        onClick={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onKeyDown={press}
      />
      {hint && (
        <span id={`${id}-hint`} className="sr">
          {hint}
        </span>
      )}
      <div className="combobox-box" hidden={!isShown} onPointerDown={(e) => e.preventDefault()}>
        <ul ref={listbox} id={`${id}-list`} role="listbox" aria-label={label} aria-busy={busy}>
          {options.map((o, i) => (
            <li key={o.key} id={`${id}-${i}`} role="option" aria-selected={i === active} aria-label={plain(o.value)} onPointerMove={() => i !== active && setChosen(o.key)} onClick={() => choose(o)}>
              {o.shown}
            </li>
          ))}
        </ul>
        {note !== undefined && <p className="combobox-note">{note}</p>}
      </div>
      <span className="sr" role="status">
        {isShown ? (options.length > 0 ? `${options.length} suggestions` : note) : ""}
      </span>
    </div>
  );
}

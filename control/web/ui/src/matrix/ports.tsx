import { useId, useState } from "react";
import { Icon } from "../parts/icon.tsx";
import { Text } from "../parts/text.tsx";
import { plain } from "../text.ts";
import { portFault } from "./cells.ts";

const usual = ["TCP/443", "TCP/80", "TCP/22", "TCP/5432", "TCP/3306", "TCP/6379", "TCP/9092", "UDP/53", "ICMP"];

// Ports are what the matrix is asked for: all of them at once.
export function Ports({ ports, onChange }: { ports: readonly string[]; onChange: (ports: string[]) => void }) {
  const id = useId();
  const [text, setText] = useState("");
  const [fault, setFault] = useState("");
  const add = () => {
    const port = text.trim().toUpperCase();
    const wrong = ports.includes(port) ? "It is there already." : ports.length >= 16 ? "Sixteen are the most." : portFault(port);
    setFault(wrong);
    if (wrong !== "") return;
    setText("");
    onChange([...ports, port]);
  };
  return (
    <form
      className="field ports"
      onSubmit={(e) => {
        e.preventDefault();
        add();
      }}
    >
      <label htmlFor={id}>Ports: who may use all of them</label>
      <div className="ports-row">
        <ul className="ports-list">
          {ports.map((p) => (
            <li key={p} className="badge info">
              <Text max={24}>{p}</Text>
              {ports.length > 1 && (
                <button type="button" className="plain" onClick={() => onChange(ports.filter((q) => q !== p))}>
                  <Icon name="close" />
                  <span className="sr">Without {plain(p)}</span>
                </button>
              )}
            </li>
          ))}
        </ul>
        <input id={id} type="text" list={`${id}-usual`} value={text} maxLength={12} placeholder="TCP/22" autoComplete="off" spellCheck={false} aria-invalid={fault !== ""} aria-describedby={`${id}-fault`} onChange={(e) => (setText(e.target.value), setFault(""))} />
        <datalist id={`${id}-usual`}>
          {usual
            .filter((p) => !ports.includes(p))
            .map((p) => (
              <option key={p} value={p} />
            ))}
        </datalist>
        <button type="submit" disabled={text.trim() === ""}>
          Add
        </button>
      </div>
      <p id={`${id}-fault`} role="alert" className="field-error">
        {fault}
      </p>
    </form>
  );
}

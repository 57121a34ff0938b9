import { useEffect, useMemo, useState } from "react";
import { useView } from "../data.ts";
import { Combobox, type Option } from "../parts/combobox.tsx";
import { Icon } from "../parts/icon.tsx";
import { PolicyRef } from "../parts/refs.tsx";
import { Text } from "../parts/text.tsx";
import { plain } from "../text.ts";
import { list, type Policies } from "../views.ts";

// Deletes are the IDs of policies that would be deleted.
export function Deletes({ ids, onChange }: { ids: readonly string[]; onChange: (ids: string[]) => void }) {
  const [text, setText] = useState("");
  const [asked, setAsked] = useState("");
  useEffect(() => {
    const t = setTimeout(() => setAsked(text.trim()), 150);
    return () => clearTimeout(t);
  }, [text]);
  const found = useView<Policies>("policies", { search: asked.split("/").pop() ?? "", limit: 20 });
  const known = list(found.data?.items);
  const options = useMemo(
    (): Option[] =>
      known
        .filter((p) => !ids.includes(p.id) && p.id.includes(asked))
        .slice(0, 12)
        .map((p) => ({ key: p.id, value: p.id, shown: <Text max={80}>{p.id}</Text> })),
    [known, ids, asked],
  );
  const add = (id: string) => {
    setText("");
    onChange([...ids, id]);
  };
  return (
    <div className="deletes">
      <Combobox
        label="Policies that would be deleted"
        value={text}
        onChange={(v) => (known.some((p) => p.id === v) && !ids.includes(v) ? add(v) : setText(v))}
        options={options}
        busy={found.isFetching}
        placeholder="Name of a policy"
        note={asked !== "" && found.data && options.length === 0 ? "No policy that you may see is like that." : undefined}
      />
      {ids.length > 0 && (
        <ul className="ports-list">
          {ids.map((id) => (
            <li key={id} className="badge quiet">
              <PolicyRef id={id} />
              <button type="button" className="plain" onClick={() => onChange(ids.filter((i) => i !== id))}>
                <Icon name="close" />
                <span className="sr">Keep {plain(id)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}

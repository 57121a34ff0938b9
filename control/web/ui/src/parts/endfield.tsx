import { useEffect, useMemo, useState } from "react";
import { useView } from "../data.ts";
import { endOf, searchOf } from "../ids.ts";
import { count } from "../text.ts";
import { list, type Workloads } from "../views.ts";
import { calledOf } from "../words.ts";
import { Combobox, type Option } from "./combobox.tsx";
import { Text } from "./text.tsx";

const most = 12;

// EndField asks for one end of a flow: a workload, with completion, or an address.
export function EndField({ label, value, onChange, isSearch = false }: { label: string; value: string; onChange: (value: string) => void; isSearch?: boolean }) {
  const [asked, setAsked] = useState(searchOf(value));
  useEffect(() => {
    const t = setTimeout(() => setAsked(searchOf(value)), 150);
    return () => clearTimeout(t);
  }, [value]);
  const found = useView<Workloads>("workloads", { search: asked, limit: most });
  const options = useMemo((): Option[] => {
    const out: Option[] = [];
    for (const w of list(found.data?.items)) {
      const end = endOf(w.id) || w.addresses?.[0];
      if (!end || w.ended) continue;
      out.push({
        key: w.id,
        value: end,
        shown: (
          <>
            <span>
              <Text max={60}>{end}</Text>
              {calledOf(w.labels) && (
                <span className="called">
                  <Text max={40}>{calledOf(w.labels)}</Text>
                </span>
              )}
            </span>
            <span className="quiet-text mono">{w.addresses?.[0] ? <Text max={40}>{w.addresses[0]}</Text> : "no address"}</span>
          </>
        ),
      });
    }
    return out;
  }, [found.data]);
  const rest = (found.data?.total ?? 0) - list(found.data?.items).length;
  const isAddress = /^[0-9.]+$|^[0-9a-f]*:[0-9a-f:.]*$/i.test(value.trim());
  const note = found.error
    ? "No suggestions: the workloads cannot be read."
    : rest > 0
      ? `${count(rest)} more: type to narrow down`
      : options.length === 0 && value !== "" && found.data && !isAddress
        ? "No workload that you may see is like that. An address may be asked for, too."
        : undefined;
  return (
    <Combobox
      label={label}
      value={value}
      onChange={onChange}
      options={options}
      note={note}
      busy={found.isFetching}
      placeholder="namespace/pod, vm:…, node:…, or address"
      hint="namespace/pod, vm:namespace/name, node:name, ee:namespace/name, or an IP address"
      isSearch={isSearch}
    />
  );
}

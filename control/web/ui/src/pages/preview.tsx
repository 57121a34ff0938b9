import { type DragEvent, useEffect, useId, useRef, useState } from "react";
import { announce } from "../announce.ts";
import { call } from "../api.ts";
import { useLive } from "../events.ts";
import { Badge } from "../parts/badges.tsx";
import { Icon } from "../parts/icon.tsx";
import { Page } from "../parts/page.tsx";
import { Bounds, Failure, Loading } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { Apply } from "../preview/apply.tsx";
import type { Preview } from "../preview/answer.ts";
import { Deletes } from "../preview/deletes.tsx";
import { added, type Draft, isTooLarge, joined, keep, kept, sizeOf } from "../preview/manifests.ts";
import { NothingYet, Results } from "../preview/results.tsx";
import { useQuery } from "../route.ts";
import { useSession } from "../session.ts";
import { bytes, counted, plain } from "../text.ts";
import { list } from "../views.ts";

type Asked = { manifests: string; deletes: string };
type Answer = { of: Asked; at: number } & ({ data: Preview } | { error: unknown });

// The last answer stays as long as what it is about.
let last: Answer | undefined;

export default function PreviewPage() {
  const query = useQuery();
  const session = useSession();
  const isReadOnly = !(session.data && "in" in session.data) || session.data.in.readOnly;
  const live = useLive();
  const [draft, setDraft] = useState<Draft>(kept);
  const [faults, setFaults] = useState<{ name: string; message: string }[]>([]);
  const [answer, setAnswer] = useState<Answer | undefined>(last);
  const [asking, setAsking] = useState<AbortController>();
  const [isApplying, setApplying] = useState(false);
  const results = useRef<HTMLDivElement>(null);
  const deletes = query.all("delete");
  const size = sizeOf(draft);
  const manifests = joined(draft);
  const now: Asked = { manifests, deletes: deletes.join("\n") };
  const isOf = answer !== undefined && answer.of.manifests === now.manifests && answer.of.deletes === now.deletes;
  const fault = isTooLarge(draft) ? "All manifests together may have 1 MiB, as the server reads them." : "";
  const canAsk = fault === "" && (manifests !== "" || deletes.length > 0) && asking === undefined;

  useEffect(() => () => asking?.abort(), [asking]);

  function change(d: Draft) {
    keep(d);
    setDraft(d);
  }

  async function take(files: readonly File[]) {
    const got = await added(kept(), files);
    change(got.draft);
    setFaults(got.faults);
    announce(got.faults.length > 0 ? "Not all files could be taken" : `${counted(files.length, "file")} taken`);
  }

  async function ask() {
    if (!canAsk) return;
    const stop = new AbortController();
    setAsking(stop);
    try {
      const data = await call<Preview>("/api/views/preview", { method: "POST", body: { manifests, delete: deletes }, signal: stop.signal });
      last = { of: now, at: Date.now(), data };
    } catch (error) {
      if (stop.signal.aborted) return;
      last = { of: now, at: Date.now(), error };
    }
    setAsking(undefined);
    setAnswer(last);
    announce("data" in last ? told(last.data) : "The preview failed");
    results.current?.focus({ preventScroll: true });
  }

  const data = isOf && answer && "data" in answer ? answer.data : undefined;
  const isClean = data !== undefined && list(data.problems).every((p) => p.warning);
  return (
    <Page title="Preview" kicker="What writes would do, before anything is written">
      <Bounds what="changes" />
      <Editor draft={draft} size={size} fault={fault} faults={faults} onChange={change} onFiles={(f) => void take(f)} onAsk={() => void ask()} />
      <Deletes ids={deletes} onChange={(ids) => query.set({ delete: ids })} />
      <div className="actions preview-actions">
        <button type="button" className="primary" disabled={!canAsk} onClick={() => void ask()}>
          <Icon name="preview" />
          Preview
        </button>
        {asking && (
          <button
            type="button"
            onClick={() => {
              asking.abort();
              setAsking(undefined);
            }}
          >
            Stop
          </button>
        )}
        {!isReadOnly && (
          <button type="button" disabled={!isClean || manifests === "" || asking !== undefined} title={isClean ? undefined : "After a preview without problems"} onClick={() => setApplying(true)}>
            Apply…
          </button>
        )}
        {!isReadOnly && isClean && deletes.length > 0 && <span className="quiet-text">What would be deleted is not deleted by Apply.</span>}
        {isReadOnly && <span className="quiet-text">This console writes nothing.</span>}
      </div>
      <div ref={results} tabIndex={-1} className={answer && !isOf ? "preview-results dim" : "preview-results"} aria-label="What would change" role="region" aria-busy={asking !== undefined}>
        {asking ? (
          <Loading what="the preview" />
        ) : !answer ? (
          <NothingYet />
        ) : (
          <>
            {!isOf && <p className="note">This is about what was there before. Preview again.</p>}
            {isOf && live.changed > answer.at && <p className="note">The world has changed since. Preview again to be sure.</p>}
            {"error" in answer ? <Failure what="The preview" error={answer.error} /> : <Results of={answer.data} />}
          </>
        )}
      </div>
      {isApplying && data && (
        <Apply
          manifests={manifests}
          preview={data}
          onClose={(written) => {
            setApplying(false);
            if (!written) return;
            last = undefined;
            setAnswer(undefined);
          }}
        />
      )}
    </Page>
  );
}

function told(p: Preview): string {
  const problems = list(p.problems).filter((x) => !x.warning).length;
  return problems > 0 ? counted(problems, "problem") : `${p.totals.gained} gained, ${p.totals.lost} lost, ${p.totals.changed} otherwise changed`;
}

type EditorProps = {
  draft: Draft;
  size: number;
  fault: string;
  faults: readonly { name: string; message: string }[];
  onChange: (d: Draft) => void;
  onFiles: (files: File[]) => void;
  onAsk: () => void;
};

// Editor takes manifests as text and as files. They never leave the memory of the page but for the server.
function Editor({ draft, size, fault, faults, onChange, onFiles, onAsk }: EditorProps) {
  const id = useId();
  const [isOver, setOver] = useState(false);
  const pick = useRef<HTMLInputElement>(null);
  const drag = (over: boolean) => (e: DragEvent) => {
    if (!e.dataTransfer.types.includes("Files")) return;
    e.preventDefault();
    setOver(over);
  };
  return (
    <div
      className={isOver ? "editor card over" : "editor card"}
      onDragEnter={drag(true)}
      onDragOver={drag(true)}
      onDragLeave={drag(false)}
      onDrop={(e) => {
        drag(false)(e);
        const files = [...e.dataTransfer.files];
        if (files.length > 0) onFiles(files);
      }}
    >
      <div className="editor-bar">
        <label htmlFor={id}>Manifests, YAML or JSON, as they would be</label>
        <span className="quiet-text num">{bytes(size)} of 1 MiB</span>
        <button type="button" onClick={() => pick.current?.click()}>
          Choose files…
        </button>
        <input
          ref={pick}
          type="file"
          hidden
          multiple
          accept=".yaml,.yml,.json"
          aria-label="Files of manifests"
          onChange={(e) => {
            onFiles([...(e.target.files ?? [])]);
            e.target.value = "";
          }}
        />
      </div>
      <textarea
        id={id}
        data-search=""
        className="mono"
        rows={draft.files.length > 0 && draft.text === "" ? 5 : 14}
        spellCheck={false}
        autoComplete="off"
        autoCapitalize="off"
        value={draft.text}
        placeholder={"apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {namespace: shop, name: db}\nspec: …\n\nor drop .yaml, .yml and .json files here"}
        aria-describedby={`${id}-keys`}
        aria-invalid={fault !== ""}
        onChange={(e) => onChange({ ...draft, text: e.target.value })}
        onKeyDown={(e) => {
          if (e.key !== "Enter" || !(e.ctrlKey || e.metaKey)) return;
          e.preventDefault();
          onAsk();
        }}
      />
      {draft.files.length > 0 && (
        <ul className="ports-list">
          {draft.files.map((f) => (
            <li key={f.name} className="badge info">
              <Text max={50}>{f.name}</Text> <span className="num">{bytes(f.size)}</span>
              <button type="button" className="plain" onClick={() => onChange({ ...draft, files: draft.files.filter((o) => o.name !== f.name) })}>
                <Icon name="close" />
                <span className="sr">Without {plain(f.name)}</span>
              </button>
            </li>
          ))}
        </ul>
      )}
      <div role="alert" className="field-error">
        {fault}
        {faults.map((f) => (
          <p key={f.name}>
            <Badge tone="bad" icon="cross">
              <Text max={60}>{f.name}</Text>
            </Badge>{" "}
            <Text>{f.message}</Text>
          </p>
        ))}
      </div>
      <p id={`${id}-keys`} className="quiet-text">
        <kbd>Ctrl</kbd> <kbd>Enter</kbd> previews. They stay in this page's memory: not in its address, and gone when it is loaded anew.
      </p>
    </div>
  );
}

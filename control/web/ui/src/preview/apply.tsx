import { useEffect, useRef, useState } from "react";
import { announce } from "../announce.ts";
import { call } from "../api.ts";
import { Badge } from "../parts/badges.tsx";
import { Sheet } from "../parts/facts.tsx";
import { Icon } from "../parts/icon.tsx";
import { Failure, Loading } from "../parts/states.tsx";
import { Text } from "../parts/text.tsx";
import { counted } from "../text.ts";
import { list } from "../views.ts";
import { type Applied, goodOutcomes, type Preview } from "./answer.ts";
import { Totals } from "./results.tsx";

type Step = { at: "asking" | "writing" } | { at: "asked" | "written"; items: NonNullable<Applied["items"]> } | { at: "failed"; while: "asking" | "writing"; error: unknown };

// Apply asks whether to write, and writes. What the server says to a dry run comes first.
export function Apply({ manifests, preview, onClose }: { manifests: string; preview: Preview; onClose: (written: boolean) => void }) {
  const dialog = useRef<HTMLDialogElement>(null);
  const [step, setStep] = useState<Step>({ at: "asking" });
  const [force, setForce] = useState(false);
  const going = useRef(0);

  async function ask(dryRun: boolean, withForce: boolean) {
    const mine = ++going.current;
    const now = dryRun ? "asking" : "writing";
    setStep({ at: now });
    try {
      const answer = await call<Applied>("/api/apply", { method: "POST", body: { manifests, dryRun, force: withForce } });
      if (mine !== going.current) return;
      setStep({ at: dryRun ? "asked" : "written", items: [...list(answer.items)] });
      if (!dryRun) announce(list(answer.items).every((i) => goodOutcomes.includes(i.outcome)) ? "Applied" : "Not all was applied");
    } catch (error) {
      if (mine === going.current) setStep({ at: "failed", while: now, error });
    }
  }

  useEffect(() => {
    dialog.current?.showModal();
    void ask(true, false);
    return () => {
      going.current++;
    };
  }, []);

  const isWriting = step.at === "writing";
  const isWritten = step.at === "written";
  const items = "items" in step ? step.items : [];
  const isGood = items.length > 0 && items.every((i) => goodOutcomes.includes(i.outcome));
  const hasConflict = items.some((i) => i.outcome === "conflict");
  return (
    <dialog
      ref={dialog}
      className="apply"
      aria-labelledby="apply-title"
      onCancel={(e) => isWriting && e.preventDefault()}
      onClose={() => onClose(isWritten || (step.at === "failed" && step.while === "writing"))}
    >
      <div className="dialog-box">
        <header>
          <h2 id="apply-title">{isWritten ? (isGood ? "Applied" : "Not all was applied") : "Apply these manifests?"}</h2>
          <button type="button" className="plain" disabled={isWriting} onClick={() => dialog.current?.close()}>
            <Icon name="close" />
            <span className="sr">Close</span>
          </button>
        </header>
        {!isWritten && (
          <>
            <p>The preview said, of what you see:</p>
            <Totals of={preview} />
            {list(preview.targets).length > 0 && <p>It writes at {counted(list(preview.targets).length, "network")} of your accounts.</p>}
            {preview.targetsDenied && (
              <p className="quiet-text">
                What it does at the places that enforce is not told: <Text>{preview.targetsDenied}</Text>
              </p>
            )}
          </>
        )}
        {(step.at === "asking" || isWriting) && (
          <>
            <p className="quiet-text" role="status">
              {isWriting ? "Writing…" : "Asking the server whether it takes them…"}
            </p>
            <Loading what="the answer" rows={3} />
          </>
        )}
        {step.at === "failed" && (
          <>
            {step.while === "writing" && <p className="note warn">Whether anything was written is not known. Look at the policies before you try again.</p>}
            <Failure what={step.while === "writing" ? "What was written" : "What would be written"} error={step.error} />
          </>
        )}
        {items.length > 0 && (
          <Sheet label="Objects" head={["Object", isWritten ? "Outcome" : "Would be", "Why"]}>
            {items.map((i) => (
              <tr key={i.id}>
                <td>
                  <Text max={70}>{i.id}</Text>
                </td>
                <td>
                  <Badge tone={i.outcome === "unchanged" ? "quiet" : goodOutcomes.includes(i.outcome) ? "good" : "bad"}>
                    <Text>{i.outcome}</Text>
                  </Badge>
                </td>
                <td className="wrap">
                  <Text>{i.message ?? ""}</Text>
                </td>
              </tr>
            ))}
          </Sheet>
        )}
        {step.at === "asked" && (hasConflict || force) && (
          <label className="check">
            <input
              type="checkbox"
              checked={force}
              onChange={(e) => {
                setForce(e.target.checked);
                void ask(true, e.target.checked);
              }}
            />
            Take the fields that others have written
          </label>
        )}
        <div className="actions">
          {!isWritten && (
            <button type="button" className="primary" disabled={step.at !== "asked" || !isGood} onClick={() => void ask(false, force)}>
              Apply {items.length > 0 ? counted(items.length, "object") : ""}
            </button>
          )}
          <button type="button" disabled={isWriting} onClick={() => dialog.current?.close()}>
            {isWritten ? "Close" : "Cancel"}
          </button>
        </div>
        {step.at === "asked" && !isGood && <p className="quiet-text">Not all of them would be taken, so none is written.</p>}
      </div>
    </dialog>
  );
}

// What stands where data would: on its way, none, an error, or not to be seen.
import type { ReactNode } from "react";
import { fixOf, StatusError } from "../api.ts";
import { counted } from "../text.ts";
import { useMe } from "../data.ts";
import { Icon } from "./icon.tsx";
import { Text } from "./text.tsx";

// Loading keeps the place of what comes. It shows itself only after a moment, so that fast answers do not flicker.
export function Loading({ what, rows = 6 }: { what: string; rows?: number }) {
  return (
    <div className="loading" role="status">
      <span className="sr">Loading {what}…</span>
      {Array.from({ length: rows }, (_, i) => (
        <span key={i} className={`bone bone-${i % 3}`} aria-hidden="true" />
      ))}
    </div>
  );
}

export function Empty({ title, children }: { title: string; children?: ReactNode }) {
  return (
    <div className="empty">
      <h2>{title}</h2>
      {children}
    </div>
  );
}

// Failure shows an error and what to do about it.
export function Failure({ error, what, retry }: { error: unknown; what: string; retry?: (() => void) | undefined }) {
  const status = error instanceof StatusError ? error : undefined;
  return (
    <div className="failure" role="alert">
      <Icon name="warn" />
      <div>
        <h2>
          {what} cannot be shown{status?.code ? <span className="code"> {status.reason || status.code}</span> : null}
        </h2>
        <p>
          <Text>{error instanceof Error ? error.message : String(error)}</Text>
        </p>
        <p className="fix">{fixOf(error)}</p>
        {retry && (
          <button type="button" onClick={retry}>
            Try again
          </button>
        )}
      </div>
    </div>
  );
}

// Stale tells that what is shown is the last that could be had.
export function Stale({ error, retry }: { error: unknown; retry: () => void }) {
  return (
    <div className="note warn" role="status">
      <Icon name="warn" />
      <span>
        This is the last answer. Asking again failed: <Text>{error instanceof Error ? error.message : String(error)}</Text>
      </span>
      <button type="button" onClick={retry}>
        Try again
      </button>
    </div>
  );
}

// Hidden stands for what the reader may not see.
export function Hidden({ children = "not visible to you" }: { children?: string }) {
  return (
    <span className="hidden-thing" title="You have no right to list it. It counts in every answer all the same.">
      ({children})
    </span>
  );
}

// Bounds says that a list has only what the reader may see, where that is not all.
export function Bounds({ what }: { what: string }) {
  const me = useMe();
  if (!me || me.allNamespaces) return null;
  const n = me.namespaces?.length ?? 0;
  return (
    <p className="note">
      You see the {what} of {n === 0 ? "no namespace" : counted(n, "namespace")} that you may list. Others count in every verdict, without their names.
    </p>
  );
}

type Shown<T> = { data: T | undefined; error: unknown; failureReason: unknown; isPlaceholderData?: boolean; refetch: () => unknown };

// Shown shows data, or what stands in its place.
export function Shown<T>({ of, what, rows, children }: { of: Shown<T>; what: string; rows?: number; children: (data: T) => ReactNode }) {
  const retry = () => void of.refetch();
  // What failed is told at once, while it is tried again.
  const error = of.error ?? of.failureReason;
  if (error && (of.data === undefined || of.isPlaceholderData)) return <Failure error={error} what={what} retry={retry} />;
  if (of.data === undefined) return <Loading what={what} {...(rows === undefined ? {} : { rows })} />;
  return (
    <>
      {of.error ? <Stale error={of.error} retry={retry} /> : null}
      {children(of.data)}
    </>
  );
}

import { type FormEvent, useEffect, useId, useState } from "react";
import { fixOf, StatusError } from "../api.ts";
import { Icon } from "../parts/icon.tsx";
import { hasMoved } from "../parts/page.tsx";
import { Text } from "../parts/text.tsx";
import { nextOf } from "../next.ts";
import { navigate, usePath, useQuery } from "../route.ts";
import { logIn, type SessionState } from "../session.ts";
import { Contours } from "../shell.tsx";

export function LoginPage({ state }: { state: SessionState }) {
  const path = usePath();
  const query = useQuery();
  const next = nextOf(path === "/login" ? query.get("next") : path + location.search);
  const isIn = "in" in state;
  useEffect(() => {
    document.title = "Log in – Isobar";
    if (isIn) navigate(next, { replace: true });
  }, [isIn, next]);
  if (isIn) return null;
  const { login, oidc, cluster } = state.out;
  return (
    <main className="login">
      <div className="login-box">
        <p className="brand">
          <Contours />
          <span>Isobar</span>
        </p>
        {cluster && (
          <p className="quiet-text">
            <Text>{cluster}</Text>
          </p>
        )}
        <h1>{login === "none" ? "Nobody is logged in" : "Log in"}</h1>
        {state.ended && <p className="note" role="status">Your session has ended.</p>}
        {oidc && (
          <p>
            <a className="button primary" href={`/api/oidc/start?next=${encodeURIComponent(next)}`}>
              Log in by your organisation
            </a>
          </p>
        )}
        {login === "token" && <TokenForm second={oidc} />}
        {login === "code" && <CodeForm />}
        {login === "none" && <p>This console knows its user from the command that serves it. Open the address that the command has printed.</p>}
      </div>
    </main>
  );
}

function useLogin() {
  const [error, setError] = useState<unknown>();
  const [busy, setBusy] = useState(false);
  async function submit(credentials: Parameters<typeof logIn>[0]) {
    if (Object.values(credentials).join("") === "") {
      setError(new StatusError(400, "BadRequest", "The field is empty."));
      return;
    }
    setBusy(true);
    setError(undefined);
    try {
      hasMoved();
      await logIn(credentials);
    } catch (e) {
      setError(e);
    } finally {
      setBusy(false);
    }
  }
  return { error, busy, submit };
}

function Problem({ error, id, what }: { error: unknown; id: string; what: string }) {
  return (
    <div id={id} role="alert" className="field-error">
      {error !== undefined && (
        <>
          <Icon name="warn" />
          <span>
            <Text>{error instanceof Error ? error.message : String(error)}</Text>{" "}
            {error instanceof StatusError && error.code === 401 ? `The ${what} may have expired, or be of another cluster.` : fixOf(error)}
          </span>
        </>
      )}
    </div>
  );
}

function TokenForm({ second }: { second: boolean }) {
  const id = useId();
  const [token, setToken] = useState("");
  const { error, busy, submit } = useLogin();
  const send = (e: FormEvent) => {
    e.preventDefault();
    setToken("");
    void submit({ token: token.trim() });
  };
  return (
    <form onSubmit={send} autoComplete="off">
      {second && <p className="or">or</p>}
      <label htmlFor={id}>Token</label>
      <input
        id={id}
        type="password"
        name="isobar-token"
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
        data-1p-ignore=""
        data-lpignore="true"
        autoFocus={!second}
        aria-describedby={`${id}-hint ${id}-error`}
        aria-invalid={error !== undefined}
        value={token}
        onChange={(e) => setToken(e.target.value)}
      />
      <Problem id={`${id}-error`} error={error} what="token" />
      <p id={`${id}-hint`} className="quiet-text">
        A bearer token that your cluster takes. It is kept in the server's memory alone, until you log out. To make one for an hour:
      </p>
      <pre className="command">
        <code>kubectl create token NAME -n NAMESPACE</code>
      </pre>
      <button type="submit" className="primary" disabled={busy}>
        {busy ? "Logging in…" : "Log in"}
      </button>
    </form>
  );
}

function CodeForm() {
  const id = useId();
  const [code, setCode] = useState("");
  const { error, busy, submit } = useLogin();
  const send = (e: FormEvent) => {
    e.preventDefault();
    setCode("");
    void submit({ code: code.trim() });
  };
  return (
    <form onSubmit={send} autoComplete="off">
      <label htmlFor={id}>One-time code</label>
      <input
        id={id}
        type="password"
        name="isobar-code"
        autoComplete="off"
        autoCapitalize="none"
        spellCheck={false}
        autoFocus
        aria-describedby={`${id}-hint ${id}-error`}
        aria-invalid={error !== undefined}
        value={code}
        onChange={(e) => setCode(e.target.value)}
      />
      <Problem id={`${id}-error`} error={error} what="code" />
      <p id={`${id}-hint`} className="quiet-text">
        The command that serves this page has printed it. It is good once.
      </p>
      <button type="submit" className="primary" disabled={busy}>
        {busy ? "Logging in…" : "Log in"}
      </button>
    </form>
  );
}

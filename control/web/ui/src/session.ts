// Who is logged in.
import { useQuery } from "@tanstack/react-query";
import { call, setCSRF, StatusError, whenUnauthorized } from "./api.ts";
import { queries } from "./data.ts";
import type { Login, Session } from "./views.ts";

export type SessionState = { in: Session } | { out: { login: Login; oidc: boolean; cluster: string }; ended: boolean };

let wasIn = false;

async function read(signal: AbortSignal): Promise<SessionState> {
  try {
    const session = await call<Session>("/api/session", { signal });
    setCSRF(session.csrf);
    wasIn = true;
    return { in: session };
  } catch (e) {
    if (!(e instanceof StatusError) || e.code !== 401) throw e;
    setCSRF("");
    const body = (typeof e.body === "object" && e.body !== null ? e.body : {}) as { login?: unknown; oidc?: unknown; cluster?: unknown };
    const login: Login = body.login === "code" || body.login === "none" ? body.login : "token";
    return { out: { login, oidc: body.oidc === true, cluster: typeof body.cluster === "string" ? body.cluster : "" }, ended: wasIn };
  }
}

export function useSession() {
  return useQuery<SessionState>({ queryKey: ["session"], queryFn: ({ signal }) => read(signal), staleTime: Infinity });
}

// recheck asks who is logged in; views of one who is not any more are forgotten.
export async function recheck(): Promise<void> {
  await queries.refetchQueries({ queryKey: ["session"] });
  const state = queries.getQueryData<SessionState>(["session"]);
  if (state && "out" in state) queries.removeQueries({ queryKey: ["view"] });
}

whenUnauthorized(() => void recheck());

export async function logIn(credentials: { token: string } | { code: string }): Promise<void> {
  await call<unknown>("/api/session", { method: "POST", body: credentials });
  queries.removeQueries({ queryKey: ["view"] });
  await recheck();
}

export async function logOut(): Promise<void> {
  await call<unknown>("/api/session", { method: "DELETE" });
  wasIn = false;
  await recheck();
}

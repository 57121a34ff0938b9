// The client of the server's API.
import { asked, isUsed } from "./use.ts";

// A Status is how Kubernetes, and so the server, says what went wrong.
export class StatusError extends Error {
  readonly code: number; // of HTTP; 0 where there was no answer
  readonly reason: string;
  readonly body: unknown;

  constructor(code: number, reason: string, message: string, body: unknown = undefined) {
    super(message);
    this.name = "StatusError";
    this.code = code;
    this.reason = reason;
    this.body = body;
  }
}

// statusOf reads what an answer that is not a success carries. It never fails: what cannot be read is told as it is.
export function statusOf(code: number, statusText: string, text: string): StatusError {
  let body: unknown;
  try {
    body = JSON.parse(text);
  } catch {
    const said = text.trim().slice(0, 500);
    return new StatusError(code, "", said || statusText || `the server answered ${code}`);
  }
  const s = (typeof body === "object" && body !== null ? body : {}) as { message?: unknown; reason?: unknown };
  const message = typeof s.message === "string" && s.message !== "" ? s.message : statusText || `the server answered ${code}`;
  return new StatusError(code, typeof s.reason === "string" ? s.reason : "", message, body);
}

let csrf = "";

// setCSRF keeps the sign that the server asks for with whatever is not a GET.
export function setCSRF(token: string) {
  csrf = token;
}

type Request = { method?: string; body?: unknown; signal?: AbortSignal };

let onUnauthorized: () => void = () => {};

// whenUnauthorized sets what is done when the server does not know us, or no longer.
export function whenUnauthorized(f: () => void) {
  onUnauthorized = f;
}

export async function call<T>(path: string, { method = "GET", body, signal }: Request = {}): Promise<T> {
  const headers: Record<string, string> = { Accept: "application/json" };
  if (method !== "GET") headers["X-Isobar-CSRF"] = csrf;
  if (!isUsed()) headers["X-Isobar-Background"] = "1";
  asked();
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const init: RequestInit = { method, headers, credentials: "same-origin", cache: "no-store", redirect: "error" };
  if (body !== undefined) init.body = JSON.stringify(body);
  if (signal) init.signal = signal;
  let answer: Response;
  let text: string;
  try {
    answer = await fetch(path, init);
    text = await answer.text();
  } catch (e) {
    if (signal?.aborted) throw e;
    throw new StatusError(0, "Unreachable", "The server of the console cannot be reached.");
  }
  if (!answer.ok) {
    if (answer.status === 401 && path !== "/api/session") onUnauthorized();
    throw statusOf(answer.status, answer.statusText, text);
  }
  if (text === "") return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new StatusError(answer.status, "Unreadable", "The server's answer cannot be read: it is not JSON.");
  }
}

export type Params = Record<string, string | number | boolean | readonly string[] | undefined>;

// search writes params as a query, sorted; what is empty or false is left out.
export function search(params: Params): string {
  const out = new URLSearchParams();
  for (const key of Object.keys(params).sort()) {
    const value = params[key];
    if (value === undefined || value === "" || value === false) continue;
    if (Array.isArray(value)) for (const v of value) out.append(key, v);
    else out.append(key, String(value));
  }
  const s = out.toString();
  return s && `?${s}`;
}

export function view<T>(name: string, params: Params = {}, request: Request = {}): Promise<T> {
  return call<T>(`/api/views/${name}${search(params)}`, request);
}

// fixOf says what the reader can do about an error.
export function fixOf(e: unknown): string {
  if (!(e instanceof StatusError)) return "This is a fault of the console. Reload the page; if it comes again, tell us what you did.";
  if (e.reason === "Unreadable") return "Something between your browser and the server changed its answer, or their versions differ. Reload the page.";
  switch (e.code) {
    case 0:
      return "Is the program that serves this page still running? The page tries again by itself.";
    case 400:
    case 422:
      return "Correct what you asked for.";
    case 401:
      return "Log in again.";
    case 403:
      return "Ask whoever administers the cluster for the right that is named above, as a Role or a ClusterRole.";
    case 404:
      return "It may have been deleted or renamed, or you may not see it.";
    case 429:
      return "You ask faster than the server answers. Wait a little.";
    case 503:
    case 504:
      return "The controller starts, or is away. The page tries again by itself.";
  }
  return e.code >= 500 ? "The server's log says more." : "Reload the page.";
}

// isPassing says whether it is worth asking again without a change.
export function isPassing(e: unknown): boolean {
  return e instanceof StatusError && (e.code === 0 || e.code === 429 || e.code >= 500) && e.reason !== "Unreadable";
}

// The errors that calls and streams throw, besides an AbortSignal's reason, as `fetch` throws it.

interface FailureBody {
  msg?: string;
  error?: { code?: string; retriable?: boolean; details?: Record<string, string> };
}

/** The server has refused a request, or has failed to do it. */
export class HeadraceError extends Error {
  override name = "HeadraceError";

  /** The HTTP status; 0 where an answer could not be read. */
  readonly status: number;

  /** One constant word for what has happened, as docs/reference/errors.md lists them; "" where a proxy has answered. */
  readonly reason: string;

  /** Ids and numbers, by name. */
  readonly details: Record<string, string>;

  /** Whether the same request may succeed later. */
  readonly isRetriable: boolean;

  /** How long the server asks callers to wait; 0 if it does not say. */
  readonly retryAfterMs: number;

  constructor(status: number, body?: FailureBody | null, retryAfterMs = 0) {
    super(body?.msg || `the server answered ${status}`);
    this.status = status;
    this.reason = body?.error?.code ?? "";
    this.details = body?.error?.details ?? {};
    this.isRetriable = body?.error?.retriable ?? status >= 500;
    this.retryAfterMs = retryAfterMs;
  }

  /** The field of the request that breaks a rule; undefined where none does. */
  get field(): string | undefined {
    return this.details.field;
  }

  /** The rule that `field` breaks. */
  get rule(): string | undefined {
    return this.details.rule;
  }
}

/** The connection has failed; the request may or may not have arrived. */
export class ConnectionLost extends Error {
  override name = "ConnectionLost";

  constructor(cause?: unknown, url = "") {
    const reason = explain(cause);
    super(`${url || "The server"} cannot be reached${reason ? `: ${reason}` : "."}`, { cause });
  }
}

/** Throw ConnectionLost for the TypeError that fetch and readers of bodies raise when a connection breaks. */
export function throwNetworkError(error: unknown, url = ""): never {
  throw error instanceof TypeError ? new ConnectionLost(error, url) : error;
}

/** Return why a connection failed, as far as Node says; browsers do not. */
function explain(error: unknown): string {
  const cause = error instanceof Error ? (error.cause as { code?: string; message?: string } | undefined) : undefined;
  const code = cause?.code ?? "";
  if (code === "ECONNREFUSED") return "nothing listens there; is the server running?";
  if (code === "ENOTFOUND" || code === "EAI_AGAIN") return "the name has no address";
  if (code === "ERR_INVALID_URL") return "it is no address such as http://127.0.0.1:8080";
  if (code.startsWith("HPE_")) return "it does not speak HTTP/1.1; is that gRPC's port?";
  if (code === "UND_ERR_SOCKET") return "it closed the connection; is that a port of gRPC or TLS?";
  if (code.includes("SSL") || code.includes("CERT")) return `TLS failed (${code}); are address and scheme right?`;
  return cause?.message ?? "";
}

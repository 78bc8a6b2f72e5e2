// What calls and streams throw. Besides these there is the reason of an AbortSignal, as `fetch` throws it.
/** The server has refused a request, or has failed to do it. */
export class HeadraceError extends Error {
    name = "HeadraceError";
    /** The HTTP status; 0 where an answer could not be read. */
    status;
    /** One constant word for what has happened, as docs/reference/errors.md lists them; "" where a proxy has answered. */
    reason;
    /** Ids and numbers, by name. */
    details;
    /** Whether the same request may succeed later. */
    isRetriable;
    /** How long the server asks to be left alone; 0 where it does not say. */
    retryAfterMs;
    constructor(status, body, retryAfterMs = 0) {
        super(body?.msg || `the server answered ${status}`);
        this.status = status;
        this.reason = body?.error?.code ?? "";
        this.details = body?.error?.details ?? {};
        this.isRetriable = body?.error?.retriable ?? status >= 500;
        this.retryAfterMs = retryAfterMs;
    }
    /** The field of the request that breaks a rule; undefined where none does. */
    get field() {
        return this.details.field;
    }
    /** The rule that `field` breaks. */
    get rule() {
        return this.details.rule;
    }
}
/** The connection has failed; the request may or may not have arrived. */
export class ConnectionLost extends Error {
    name = "ConnectionLost";
    constructor(cause) {
        super("The server cannot be reached.", { cause });
    }
}
/** Throw ConnectionLost for the TypeError that fetch and readers of bodies raise when a connection breaks. */
export function throwNetworkError(error) {
    throw error instanceof TypeError ? new ConnectionLost(error) : error;
}

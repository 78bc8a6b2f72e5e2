// Sends requests to a server with the caller's credential, and reads its envelope.
import { HeadraceError, throwNetworkError } from "./errors.js";
import { parseJson } from "./json.js";
export class Transport {
    #url;
    #token;
    #fetch;
    constructor({ url = "", token, fetch: send = (input, init) => fetch(input, init) } = {}) {
        this.#url = url.replace(/\/+$/, "");
        this.#token = token;
        this.#fetch = send;
    }
    /** Return the response of a request that has succeeded; throws HeadraceError, ConnectionLost or the signal's reason. */
    async send(path, init = {}) {
        const headers = new Headers(init.headers);
        const token = typeof this.#token === "function" ? await this.#token() : this.#token;
        if (token)
            headers.set("Authorization", `Bearer ${token}`);
        const sent = this.#fetch(this.#url + path, { ...init, headers });
        const response = await sent.catch((error) => throwNetworkError(error, this.#url));
        if (response.ok)
            return response;
        throw await readFailure(response, this.#url);
    }
    /** Return the whole envelope of an answer: `data` and the fields next to it. */
    async request(path, init) {
        const response = await this.send(path, init);
        const text = await response.text().catch(throwNetworkError);
        try {
            return parseJson(text);
        }
        catch (error) {
            throw new Error(`What answers at ${this.#url || "this address"} is not Headrace.`, { cause: error });
        }
    }
}
export function buildPath(path, parameters = {}) {
    const query = new URLSearchParams();
    for (const [name, value] of Object.entries(parameters)) {
        for (const one of Array.isArray(value) ? value : [value])
            if (one != null)
                query.append(name, String(one));
    }
    return query.size ? `${path}?${query}` : path;
}
export function buildPost(body) {
    const text = typeof body === "string" ? body : JSON.stringify(body);
    return { method: "POST", headers: { "Content-Type": "application/json" }, body: text };
}
/** Return a random UUID; crypto.randomUUID is missing on plain HTTP from another machine. */
export function createId() {
    const bytes = crypto.getRandomValues(new Uint8Array(16));
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
}
async function readFailure(response, url) {
    const text = await response.text().catch(throwNetworkError);
    const retryAfterMs = 1000 * (Number(response.headers.get("Retry-After")) || 0);
    let body = { msg: `${url || "the server"} answered ${response.status}, not as Headrace does` };
    try {
        body = parseJson(text);
    }
    catch {
        // A proxy has answered instead of the server; its page is not for our users.
    }
    return new HeadraceError(response.status, body, retryAfterMs);
}

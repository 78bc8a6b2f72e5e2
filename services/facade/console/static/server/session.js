// The session of a user who has signed in with the provider. No script can read its cookie; /auth/ describes it.

const PLACE = "headrace.place";
const LOCK = "headrace-session";

/** Return {signIn, session}: whether people sign in at a provider, and the session of this one, if any. */
export async function loadSession() {
  const response = await fetch("/auth/session").catch(() => null);
  return response?.ok ? (await response.json()).data : {};
}

/** Refresh the session, once for all tabs; return whether it is good now. */
export async function refreshSession() {
  if (!navigator.locks) return refreshOnce(); // on plain HTTP from another machine
  return navigator.locks.request(LOCK, refreshOnce);
}

async function refreshOnce() {
  const { session } = await loadSession();
  if (!session) return false;
  if (session.goodUntil > Date.now()) return true; // another tab was first
  if (!session.canRefresh) return false;
  const response = await fetch("/auth/refresh", { method: "POST" }).catch(() => null);
  return Boolean(response?.ok);
}

/** Go to the provider, and return to the current view afterwards. */
export function signIn() {
  sessionStorage.setItem(PLACE, location.hash);
  location.assign("/auth/sign-in");
}

/** Restore the view from before the sign-in. */
export function restorePlace() {
  const place = sessionStorage.getItem(PLACE);
  sessionStorage.removeItem(PLACE);
  if (place && !location.hash) history.replaceState(null, "", place);
}

/** End the session here, and go to where the provider ends its own. */
export async function signOut() {
  const response = await fetch("/auth/sign-out", { method: "POST" });
  const { url } = response.ok ? (await response.json()).data : {};
  location.assign(url || "/");
}

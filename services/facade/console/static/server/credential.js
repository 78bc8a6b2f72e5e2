// Keeps the user's API key or token for this tab alone and sends it with every request; or has the user sign in.

import { loadSession, refreshSession, restorePlace, signIn, signOut } from "./session.js";

const NAME = "headrace.credential";

/** Return the credential; null where there is none. */
export const getCredential = () => sessionStorage.getItem(NAME);

export const hasCredential = () => getCredential() !== null;

/** Show `form` whenever the facade answers 401; submitting it stores the credential and reloads the page. */
export function setUpSignIn(form) {
  restorePlace();
  const provider = form.elements.provider;
  provider.addEventListener("click", signIn);
  document.addEventListener("unauthenticated", async () => {
    const { signIn: hasProvider } = await loadSession();
    provider.hidden = !hasProvider;
    form.elements.show.classList.toggle("primary", !hasProvider);
    form.hidden = false;
    (hasProvider ? provider : form.elements.credential).focus();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(NAME, form.elements.credential.value.trim());
    location.reload();
  });
}

/** Show `button` to who has signed in, with their name; it signs out. */
export async function setUpSignOut(button) {
  const { session } = hasCredential() ? {} : await loadSession();
  if (!session && !hasCredential()) return;
  if (session) button.title = `${session.user}, ${session.tenant}`;
  button.addEventListener("click", () => {
    sessionStorage.removeItem(NAME);
    return session ? signOut() : location.reload();
  });
  button.hidden = false;
}

/** Return whether a request that was refused with 401 and this code may be sent once more. */
export const renewCredential = async (code) =>
  code === "CREDENTIAL_ENDED" && !hasCredential() && (await refreshSession());

/** Notify the page that a request had no credential or a wrong one. */
export const reportUnauthenticated = () => document.dispatchEvent(new Event("unauthenticated"));

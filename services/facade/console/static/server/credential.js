// Keeps the user's API key or token for this tab alone and sends it with every request; or has the user sign in.

import { createButton, createElement } from "../elements/dom.js";
import { loadSession, refreshSession, restorePlace, signIn, signOut } from "./session.js";

const NAME = "headrace.credential";

/** Return the credential, or null. */
export const getCredential = () => sessionStorage.getItem(NAME);

export const hasCredential = () => getCredential() !== null;

/** Show `form` whenever the facade answers 401; submitting it stores the credential and reloads the page. */
export function setUpSignIn(form) {
  restorePlace();
  const provider = createButton("Sign in with SSO", signIn, { class: "primary", hidden: true });
  const field = createElement("input", {
    id: "credential",
    type: "password",
    autocomplete: "current-password",
    "aria-describedby": "refused",
    required: true,
  });
  const refused = createElement("p", { id: "refused", class: "problem", role: "alert" });
  const show = createElement("button", { type: "submit", class: "primary" }, "Sign in");
  const label = createElement("label", { for: "credential" }, "API key or token");
  form.append(createElement("h2", {}, "Sign in"), provider, label, field, refused, show);
  document.addEventListener("unauthenticated", async ({ detail }) => {
    const { signIn: hasProvider } = await loadSession();
    provider.hidden = !hasProvider;
    show.classList.toggle("primary", !hasProvider);
    form.hidden = false;
    if (hasCredential()) refused.textContent = `This key or token was refused: ${detail}`;
    field.setAttribute("aria-invalid", hasCredential());
    (hasProvider ? provider : field).focus();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(NAME, field.value.trim());
    location.reload();
  });
}

/** Show a signed-in user `button`, which signs out, with their name. */
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

/** Notify the page that a request had no valid credential, with the facade's message. */
export const reportUnauthenticated = (detail) => document.dispatchEvent(new CustomEvent("unauthenticated", { detail }));

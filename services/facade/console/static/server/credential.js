// Keeps the user's API key or token for this tab alone and sends it with every request.

const NAME = "headrace.credential";

/** Return the credential; null where there is none. */
export const getCredential = () => sessionStorage.getItem(NAME);

export const hasCredential = () => getCredential() !== null;

/** Show `form` whenever the facade answers 401; submitting it stores the credential and reloads the page. */
export function setUpSignIn(form) {
  document.addEventListener("unauthenticated", () => {
    form.hidden = false;
    form.elements.credential.focus();
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sessionStorage.setItem(NAME, form.elements.credential.value.trim());
    location.reload();
  });
}

/** Notify the page that a request had no credential or a wrong one. */
export const reportUnauthenticated = () => document.dispatchEvent(new Event("unauthenticated"));

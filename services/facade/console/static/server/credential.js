// The user's API key or token, where the facade wants one: kept for this tab alone, sent with every request.

const NAME = "headrace.credential";

/** Headers of a request, with the credential when there is one. */
export function withCredential(headers = {}) {
  const credential = sessionStorage.getItem(NAME);
  return credential ? { ...headers, Authorization: `Bearer ${credential}` } : headers;
}

export const hasCredential = () => sessionStorage.getItem(NAME) !== null;

/** Show `form` whenever the facade says that it does not know who asks; what is entered begins the page anew. */
export function askIn(form) {
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

/** Tell the page that a request was made without a credential, or with a wrong one. */
export const unauthenticated = () => document.dispatchEvent(new Event("unauthenticated"));

// Handles the browser's return from an authorization server, after the user has authorized Headrace at an MCP server.

import { completeAuthorization } from "../server/api.js";
import { setUpSignIn } from "../server/credential.js";

const outcome = document.getElementById("outcome");
const query = new URLSearchParams(location.search);
const given = { state: query.get("state"), code: query.get("code"), issuer: query.get("iss"), error: query.get("error") };

/** Keep the authorization, and say how that went. */
async function complete() {
  if (!given.state) {
    outcome.textContent = "This address has no authorization.";
    return;
  }
  try {
    const { server } = await completeAuthorization(given);
    outcome.textContent = `Headrace can now use ${server} for you. Continue in the page that asked.`;
  } catch (error) {
    outcome.textContent = error.message;
    if (error.status === 401) return; // signing in loads the address again
  }
  history.replaceState(null, "", location.pathname); // the code is valid once, and secret
}

document.getElementById("inbox").href = "/#page=inbox";
setUpSignIn(document.getElementById("sign-in"));
await complete();

// Opens workspace files where a link alone cannot, because a link carries no credential.

import * as api from "../server/api.js";
import { hasCredential } from "../server/credential.js";
import { isWorkspaceFile } from "../elements/dom.js";
import { saveData } from "../elements/download.js";

/** Save our files when their links are clicked; shown as our page, a file could do what the user can. */
export function saveFilesOnClick(page, onProblem) {
  page.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const address = link?.getAttribute("href")?.replace(location.origin, "");
    if (!address || !isWorkspaceFile(address) || !hasCredential()) return;
    event.preventDefault();
    saveFile(address).catch(onProblem);
  });
}

async function saveFile(address) {
  const path = new URL(address, location.href).searchParams.get("path") ?? "file";
  saveData(await api.fetchFile(address), path.split("/").at(-1));
}

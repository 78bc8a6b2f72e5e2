// Files of a workspace, where a link alone does not open them: a link carries no credential.

import * as api from "../server/api.js";
import { hasCredential } from "../server/credential.js";
import { isOurFile } from "../elements/dom.js";

/** Save our files when their links are followed. Never shown: as a page of ours, a file could do what the user can. */
export function saveFiles(page, problem) {
  page.addEventListener("click", (event) => {
    const link = event.target.closest?.("a[href]");
    const address = link?.getAttribute("href")?.replace(location.origin, "");
    if (!address || !isOurFile(address) || !hasCredential()) return;
    event.preventDefault();
    save(address).catch(problem);
  });
}

async function save(address) {
  const path = new URL(address, location.href).searchParams.get("path") ?? "file";
  const data = new Blob([await api.file(address)], { type: "application/octet-stream" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(data);
  link.download = path.split("/").at(-1);
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

// Gives the reader data as a file.

const KEPT_MS = 60_000; // longer than a browser takes to begin the download

/** Have the browser save `data` under a name. */
export function saveData(data, name) {
  const link = document.createElement("a");
  // Of no type that a browser would show: opened as our page, it could do what the user can.
  link.href = URL.createObjectURL(new Blob([data], { type: "application/octet-stream" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), KEPT_MS);
}

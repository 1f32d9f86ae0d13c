// The drop zone is made anew when its tab is opened and when its file is taken away. Its name must hold the words that are seen in it.
const ZONE = "#prompts-file button[aria-dropeffect][aria-label]";
document.addEventListener("click", () => setTimeout(() => document.querySelector(ZONE)?.removeAttribute("aria-label"), 300));

// A file that is dropped beside the zone would be opened in the place of the page, and all that the page has be gone.
const takes = (event) => event.target.closest?.("#prompts-file button[aria-dropeffect]");
for (const name of ["dragover", "drop"]) {
  document.addEventListener(name, (event) => {
    if (!event.dataTransfer?.types.includes("Files") || takes(event)) return;
    event.preventDefault();
    event.dataTransfer.dropEffect = "none";
  });
}

// The drop zone is made anew when its tab is opened and when its file is taken away. Its name must hold the words that are seen in it.
const ZONE = "#prompts-file button[aria-dropeffect][aria-label]";
document.addEventListener("click", () => setTimeout(() => document.querySelector(ZONE)?.removeAttribute("aria-label"), 300));

// Gives the window a language that number formats know. Where the system's locale is C, as on servers and in some autostarts,
// WebKitGTK says "C", and whoever makes a format with that while loading (uPlot does) ends with an empty window.

export function repairLocale(target: Navigator): void {
  try {
    new Intl.NumberFormat(target.language);
  } catch {
    Object.defineProperty(target, "language", { value: "en-US", configurable: true });
    Object.defineProperty(target, "languages", { value: ["en-US"], configurable: true });
  }
}

repairLocale(navigator);

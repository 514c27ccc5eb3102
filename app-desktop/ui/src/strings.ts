// Every text of the window, from the one file that holds all texts of the app.

import texts from "../../strings/en.json";

export const strings = texts.window;

/** Puts values in the places of a text: `fill("by {relay}", { relay: "home" })`. */
export function fill(text: string, values: Record<string, string>): string {
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => values[name] ?? whole);
}

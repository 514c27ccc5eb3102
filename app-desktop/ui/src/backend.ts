// The one way from the window to the app: what it can ask, and what it is told. Tests bring their own.

import { Channel, invoke } from "@tauri-apps/api/core";
import { listen } from "@tauri-apps/api/event";
import type { Columns, Measurable, Mode, Refusal, Run, Settings, Span, State } from "./types";

export interface Backend {
  /** Tells every state from now on, as long as the window is shown. */
  subscribe(onState: (state: State) => void): Promise<void>;
  /** Tells that another program has opened a pairing link. */
  onLink(onLink: () => void): Promise<void>;
  /** The pairing link that another program has opened, once. */
  takeLink(): Promise<string | null>;
  connect(): Promise<void>;
  disconnect(): Promise<void>;
  setMode(mode: Mode): Promise<void>;
  setNetwork(network: string, setting: string, value: string): Promise<void>;
  /** What a link says without its secret. */
  readLink(link: string): Promise<{ addresses: string; name: string }>;
  pair(link: string, name: string | null, allowFile: boolean): Promise<void>;
  renameRelay(from: string, to: string): Promise<void>;
  removeRelay(name: string): Promise<void>;
  preferRelay(name: string | null): Promise<void>;
  /** A relay's link as an SVG picture. */
  linkQr(name: string): Promise<string>;
  saveSettings(settings: Settings): Promise<void>;
  autostart(): Promise<boolean>;
  setAutostart(on: boolean): Promise<void>;
  history(span: Span): Promise<Columns>;
  /** Begins to measure; the state tells how far it is. */
  measure(what: Measurable, seconds: number): Promise<void>;
  cancelMeasuring(): Promise<void>;
  /** What was measured, the newest first. */
  runs(): Promise<Run[]>;
  /** Saves the report and tells where. */
  saveReport(): Promise<string>;
  version(): Promise<string>;
  /** Ends the app and the engine that it runs. */
  quit(): Promise<void>;
}

export function tauriBackend(): Backend {
  return {
    subscribe(onState) {
      const channel = new Channel<State>();
      channel.onmessage = onState;
      return invoke("subscribe", { channel });
    },
    async onLink(onLink) {
      await listen("link", onLink);
    },
    takeLink: () => invoke("take_link"),
    connect: () => invoke("connect"),
    disconnect: () => invoke("disconnect"),
    setMode: (mode) => invoke("set_mode", { mode }),
    setNetwork: (network, setting, value) => invoke("set_network", { network, setting, value }),
    readLink: (link) => invoke("read_link", { link }),
    pair: (link, name, allowFile) => invoke("pair", { link, name, allowFile }),
    renameRelay: (from, to) => invoke("rename_relay", { from, to }),
    removeRelay: (name) => invoke("remove_relay", { name }),
    preferRelay: (name) => invoke("prefer_relay", { name }),
    linkQr: (name) => invoke("link_qr", { name }),
    saveSettings: (settings) => invoke("save_settings", { settings }),
    autostart: () => invoke("autostart"),
    setAutostart: (on) => invoke("set_autostart", { on }),
    history: (span) => invoke("history", { span }),
    measure: (what, seconds) => invoke("measure", { what, seconds }),
    cancelMeasuring: () => invoke("cancel_measuring"),
    runs: () => invoke("runs"),
    saveReport: () => invoke("save_report"),
    version: () => invoke("version"),
    quit: () => invoke("quit"),
  };
}

/** What a command that failed has to say. */
export function refusal(error: unknown): Refusal {
  if (typeof error === "object" && error !== null && "text" in error && "kind" in error) return error as Refusal;
  return { kind: "other", text: String(error) };
}

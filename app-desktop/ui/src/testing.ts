// What tests stand on: a state as the controller tells it, and a backend that remembers what it was asked.

import type { Backend } from "./backend";
import type { Columns, Direction, FairnessRun, Network, Path, Snapshot, SpeedRun, State } from "./types";

export function direction(some: Partial<Direction> = {}): Direction {
  return {
    goodput_mbps: 0, flow_bytes: 0, datagrams: 0, copies: 0, copies_skipped: 0, copies_useful: 0, copy_bytes: 0,
    link_bytes: 0, effective_loss_percent: 0, ...some,
  };
}

export function path(name: string, some: Partial<Path> = {}): Path {
  const way = { bytes: 0, rate_mbps: 0, loss_percent: 0, queue_ms: 0 };
  return {
    interface: name, state: "up", role: "use", problem: null, preferred: false, srtt_ms: 12.34, jitter_ms: 0.5,
    up: { ...way }, down: { ...way }, ...some,
  };
}

export function network(name: string, some: Partial<Network> = {}): Network {
  return {
    name, kind: "wifi", present: true, role: "use", metered: false, used_today_bytes: 0, used_month_bytes: 0,
    cap_daily_bytes: null, cap_monthly_bytes: null, reset_day: 1, cap: "free", limit_mbps: null, problem: null, ...some,
  };
}

export function snapshot(some: Partial<Snapshot> = {}): Snapshot {
  return {
    state: "connected", problem: null, relay: "relay.example:4433",
    relays: [{ name: "home", addresses: "relay.example:4433", state: "used", rtt_ms: 12, problem: null }],
    proxy: "127.0.0.1:1080", mode: "bicast", bicast: "both", congestion: "bbr3", uptime_s: 125, flows_open: 1, srtt_ms: 20,
    up: direction(), down: direction({ goodput_mbps: 88.2 }), paths: [path("wlan0"), path("wwan0")],
    networks: [network("wlan0"), network("wwan0", { kind: "cellular" })], ...some,
  };
}

export function state(some: Partial<State> = {}): State {
  return {
    life: "on", elsewhere: false, condition: "connected", fault: null, snapshot: snapshot(),
    relays: [{ name: "home", addresses: "relay.example:4433", paired_as: "laptop", preferred: false }],
    kept: "the keychain", kept_problem: null,
    settings: { connect_at_start: true, system_proxy: false, notify: true, mode: null },
    system_proxy: { desktop: "GNOME", set: false, problem: null },
    measuring: { running: null, problem: null, latest: null, kept_problem: null }, ...some,
  };
}

export function fairnessRun(some: Partial<FairnessRun> = {}): FairnessRun {
  return {
    what: "fairness", id: 1, unix_s: 1_790_000_000, relay: "home", congestion: "bbr3", seconds: 10, mode: "bicast", bicast: "both",
    tunnel_mbps: 61.2, fair_jain: 0.9, paper_kept: { percent: 90, at_least: true },
    rows: [
      { network: "wlan0", tcp_alone_mbps: 40, tcp_beside_mbps: 30, tunnel_mbps: 50, problem: null },
      { network: "wwan0", tcp_alone_mbps: null, tcp_beside_mbps: null, tunnel_mbps: 20, problem: "no TCP connection" },
    ],
    shares: [{ utilization_percent: 75, jain: 0.94 }, { utilization_percent: null, jain: null }], ...some,
  };
}

export function speedRun(some: Partial<SpeedRun> = {}): SpeedRun {
  const load = { mbps: 47.26, rtt_ms: 23.4, loss_percent: 0.5 };
  return {
    what: "speed", id: 2, unix_s: 1_790_000_100, relay: "home", congestion: "bbr3", seconds: 8,
    rows: [
      { networks: ["wlan0"], mode: "single", idle_rtt_ms: 20.1, down: load, up: null, problem: "hardly anything came through" },
      { networks: ["wlan0", "wwan0"], mode: "bicast", bicast: "both", idle_rtt_ms: 18, down: { ...load, mbps: 60 }, up: load, problem: null },
    ],
    ...some,
  };
}

export const NO_HISTORY: Columns = {
  unix_s: [], down_mbps: [], up_mbps: [], down_lost_percent: [], up_lost_percent: [], networks: [],
};

/** Remembers calls as `name(arguments)`; answers can be replaced. */
export function fakeBackend(first: State, answers: Partial<Backend> = {}) {
  const calls: string[] = [];
  let tell: (state: State) => void = () => {};
  let arrive: () => void = () => {};
  const note = (name: string, ...values: unknown[]) => {
    calls.push(`${name}(${values.map((value) => JSON.stringify(value)).join(", ")})`);
    return Promise.resolve();
  };
  const backend: Backend = {
    subscribe: async (onState) => { tell = onState; tell(first); },
    onLink: async (onLink) => { arrive = onLink; },
    takeLink: async () => null,
    connect: () => note("connect"),
    disconnect: () => note("disconnect"),
    setMode: (mode) => note("setMode", mode),
    setNetwork: (...values) => note("setNetwork", ...values),
    readLink: async () => ({ addresses: "relay.example:4433", name: "laptop" }),
    pair: (...values) => note("pair", ...values),
    renameRelay: (...values) => note("renameRelay", ...values),
    removeRelay: (name) => note("removeRelay", name),
    preferRelay: (name) => note("preferRelay", name),
    linkQr: async () => "<svg xmlns='http://www.w3.org/2000/svg'/>",
    saveSettings: (settings) => note("saveSettings", settings),
    autostart: async () => false,
    setAutostart: (on) => note("setAutostart", on),
    history: async () => NO_HISTORY,
    measure: (...values) => note("measure", ...values),
    cancelMeasuring: () => note("cancelMeasuring"),
    runs: async () => [],
    saveReport: async () => "/home/ann/Downloads/tandem-report-1.txt",
    version: async () => "0.1.0",
    quit: () => note("quit"),
    ...answers,
  };
  return { backend, calls, tell: (state: State) => tell(state), arrive: () => arrive() };
}

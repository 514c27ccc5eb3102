// What the controller tells: `State` of app-desktop/controller, and in it the snapshot of docs/CLIENT.md.

export type Condition =
  | "unpaired" | "off" | "starting" | "stopping" | "connecting" | "connected"
  | "no_network" | "captive" | "refused" | "unreachable";
export type Life = "off" | "starting" | "on" | "stopping";
export type Sides = "client" | "server" | "both";
export type Mode = { mode: "single" } | { mode: "bicast"; bicast: Sides };
export type Role = "use" | "backup" | "never";
export type Kind = "wifi" | "cellular" | "ethernet" | "other";

export interface Direction {
  goodput_mbps: number;
  flow_bytes: number;
  datagrams: number;
  copies: number;
  copies_skipped: number;
  copies_useful: number;
  copy_bytes: number;
  link_bytes: number;
  effective_loss_percent: number;
}

export interface PathDirection {
  bytes: number;
  rate_mbps: number;
  loss_percent: number;
  queue_ms: number;
}

export interface Path {
  interface: string;
  state: "up" | "joining" | "down";
  role: "use" | "backup" | "gone";
  problem: string | null;
  preferred: boolean;
  srtt_ms: number | null;
  jitter_ms: number;
  up: PathDirection;
  down: PathDirection;
}

export interface Network {
  name: string;
  kind: Kind;
  present: boolean;
  role: Role;
  metered: boolean;
  used_today_bytes: number;
  used_month_bytes: number;
  cap_daily_bytes: number | null;
  cap_monthly_bytes: number | null;
  reset_day: number;
  cap: "free" | "near" | "reached";
  limit_mbps: number | null;
  problem: string | null;
}

export interface RelayStats {
  name: string;
  addresses: string;
  state: "used" | "leaving" | "known" | "refused";
  rtt_ms: number | null;
  problem: string | null;
}

export interface Snapshot {
  state: "stopped" | "connecting" | "connected";
  problem: string | null;
  relay: string;
  relays: RelayStats[];
  proxy: string | null;
  mode: Mode["mode"];
  bicast?: Sides;
  congestion: string;
  uptime_s: number;
  flows_open: number;
  srtt_ms: number;
  up: Direction;
  down: Direction;
  paths: Path[];
  networks: Network[];
}

export interface Relay {
  name: string;
  addresses: string;
  paired_as: string;
  preferred: boolean;
}

export interface Settings {
  connect_at_start: boolean;
  system_proxy: boolean;
  notify: boolean;
  mode: Mode | null;
}

export interface State {
  life: Life;
  elsewhere: boolean;
  condition: Condition;
  fault: string | null;
  snapshot: Snapshot | null;
  relays: Relay[];
  kept: string | null;
  kept_problem: string | null;
  settings: Settings;
  system_proxy: { desktop: string | null; set: boolean; problem: string | null };
  measuring: Measuring;
}

export type Measurable = "speed" | "fairness";

export interface Progress {
  step: string;
  number: number;
  of: number;
  mbps: number | null;
  left_s: number;
}

export interface Measuring {
  running: { what: Measurable; seconds: number; progress: Progress | null } | null;
  problem: string | null;
  latest: number | null;
  kept_problem: string | null;
}

export interface Load {
  mbps: number;
  rtt_ms: number;
  loss_percent: number;
}

export interface SpeedRow {
  networks: string[];
  mode: Mode["mode"];
  bicast?: Sides;
  idle_rtt_ms: number | null;
  down: Load | null;
  up: Load | null;
  problem: string | null;
}

export interface FairnessRow {
  network: string;
  tcp_alone_mbps: number | null;
  tcp_beside_mbps: number | null;
  tunnel_mbps: number | null;
  problem: string | null;
}

interface AnyRun {
  id: number;
  unix_s: number;
  relay: string;
  congestion: string;
  seconds: number;
}

export interface SpeedRun extends AnyRun {
  what: "speed";
  rows: SpeedRow[];
}

export interface FairnessRun extends AnyRun {
  what: "fairness";
  mode: Mode["mode"];
  bicast?: Sides;
  tunnel_mbps: number;
  rows: FairnessRow[];
  /** What follows for each row. */
  shares: { utilization_percent: number | null; jain: number | null }[];
  paper_kept: { percent: number; at_least: boolean } | null;
  fair_jain: number;
}

export type Run = SpeedRun | FairnessRun;

export type Span = "minute" | "hour";
type Line = (number | null)[];

export interface NetworkColumns {
  name: string;
  down_mbps: Line;
  up_mbps: Line;
  down_loss_percent: Line;
  up_loss_percent: Line;
  queue_ms: Line;
}

export interface Columns {
  unix_s: number[];
  down_mbps: Line;
  up_mbps: Line;
  down_lost_percent: Line;
  up_lost_percent: Line;
  networks: NetworkColumns[];
}

export interface Refusal {
  kind: "no_keychain" | "other";
  text: string;
}

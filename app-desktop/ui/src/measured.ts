// What was measured, as data to draw: bars, marks and the cells of tables.

import { mbps, moment, ms, percent } from "./format";
import { fill, strings } from "./strings";
import type { FairnessRun, Load, Run, Sides, SpeedRun } from "./types";

export interface Bar {
  name: string;
  /** `null` where nothing could be measured. */
  value: number | null;
  /** A custom property of the style sheet. */
  colour: string;
}

export interface Mark {
  value: number;
}

const COLOURS = ["--c0", "--c1", "--c2", "--c3"];

/** What TCP kept on each network, and what is said of the paper's value. */
export function kept(run: FairnessRun): { bars: Bar[]; mark: Mark | null; about: string } {
  const paper = run.paper_kept;
  const value = paper && percent(paper.percent, paper.percent % 1 ? 1 : 0);
  const about = paper
    ? fill(strings.tcp_kept_paper, { value: paper.at_least ? fill(strings.at_least, { value: value ?? "" }) : (value ?? "") })
    : strings.tcp_kept_paper_none;
  return { bars: bars(run, (index) => run.shares[index]?.utilization_percent), mark: paper && { value: paper.percent }, about };
}

/** How equal the shares are on each network. */
export function jain(run: FairnessRun): { bars: Bar[]; mark: Mark; about: string } {
  const about = fill(strings.jain_paper, { value: run.fair_jain.toFixed(1) });
  return { bars: bars(run, (index) => run.shares[index]?.jain), mark: { value: run.fair_jain }, about };
}

function bars(run: FairnessRun, value: (index: number) => number | null | undefined): Bar[] {
  return run.rows.map((row, index) => ({ name: row.network, value: value(index) ?? null, colour: COLOURS[index % COLOURS.length] ?? "--c0" }));
}

/** A table: the rows' names, and their cells. */
export interface Table {
  heads: string[];
  rows: { name: string; cells: string[] }[];
}

export function rates(run: FairnessRun): Table {
  const rate = (value: number | null) => (value === null ? "–" : mbps(value));
  const rows = run.rows.map((row) => ({ name: row.network, cells: [row.tcp_alone_mbps, row.tcp_beside_mbps, row.tunnel_mbps].map(rate) }));
  return { heads: [strings.tcp_alone, strings.tcp_beside, strings.tunnel], rows };
}

export function speeds(run: SpeedRun): Table {
  const of = (load: Load | null, write: (load: Load) => string) => (load ? write(load) : "–");
  const rows = run.rows.map((row) => ({
    name: speedName(row.networks),
    cells: [
      of(row.down, (load) => mbps(load.mbps)),
      of(row.up, (load) => mbps(load.mbps)),
      ms(row.idle_rtt_ms),
      of(row.down, (load) => ms(load.rtt_ms)),
      of(row.up, (load) => ms(load.rtt_ms)),
      of(row.down, (load) => percent(load.loss_percent, 2)),
      of(row.up, (load) => percent(load.loss_percent, 2)),
    ],
  }));
  const { speed_down, speed_up, rtt_idle, rtt_down, rtt_up, loss_down, loss_up } = strings;
  return { heads: [speed_down, speed_up, rtt_idle, rtt_down, rtt_up, loss_down, loss_up], rows };
}

/** What is missing, and why. */
export function problems(run: Run): string[] {
  const rows = run.what === "speed" ? run.rows.map((row) => ({ name: speedName(row.networks), problem: row.problem })) : run.rows.map((row) => ({ name: row.network, problem: row.problem }));
  return rows.filter((row) => row.problem).map((row) => `${row.name}: ${row.problem}`);
}

/** A run in one line of a list. */
export function label(run: Run): string {
  const what = run.what === "speed" ? strings.measure_speed : strings.measure_fairness;
  const detail = run.what === "speed" ? run.relay : `${modeWord(run.mode, run.bicast)}, ${run.relay}`;
  return fill(strings.run_label, { time: moment(run.unix_s), what, detail });
}

function speedName(networks: string[]): string {
  return networks.length > 1 ? fill(strings.all_networks, { networks: networks.join(" + ") }) : networks.join("");
}

/** How the networks were used. */
export function modeWord(mode: "single" | "bicast", sides?: Sides): string {
  if (mode === "single") return strings.mode_single;
  const words = { both: strings.direction_both, server: strings.direction_server, client: strings.direction_client };
  return `${strings.mode_bicast} (${words[sides ?? "both"].toLocaleLowerCase()})`;
}

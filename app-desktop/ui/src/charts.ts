// What the live view draws, as data: which lines there are, what they are called and how they look.

import { strings } from "./strings";
import type { Columns } from "./types";

export type Shown = "down" | "up";
type Line = (number | null)[];

export interface Series {
  name: string;
  /** A custom property of the style sheet. */
  colour: string;
  /** Told apart without colours as well. */
  dash: number[];
  width: number;
  values: Line;
}

const COLOURS = ["--c0", "--c1", "--c2", "--c3"];
const DASHES = [[], [6, 3], [2, 3], [8, 3, 2, 3]];

function look(index: number): Pick<Series, "colour" | "dash" | "width"> {
  return { colour: COLOURS[index % COLOURS.length] ?? "--c0", dash: DASHES[index % DASHES.length] ?? [], width: 1.5 };
}

function all(name: string, values: Line): Series {
  return { name, colour: "--c-all", dash: [], width: 2.5, values };
}

export function rate(columns: Columns, shown: Shown): Series[] {
  const of = columns.networks.map((network, index) => ({
    name: network.name,
    ...look(index),
    values: shown === "down" ? network.down_mbps : network.up_mbps,
  }));
  return [...of, all(strings.total, shown === "down" ? columns.down_mbps : columns.up_mbps)];
}

export function loss(columns: Columns, shown: Shown): Series[] {
  const of = columns.networks.map((network, index) => ({
    name: network.name,
    ...look(index),
    values: shown === "down" ? network.down_loss_percent : network.up_loss_percent,
  }));
  return [...of, all(strings.left, shown === "down" ? columns.down_lost_percent : columns.up_lost_percent)];
}

export function delay(columns: Columns): Series[] {
  return columns.networks.map((network, index) => ({ name: network.name, ...look(index), values: network.queue_ms }));
}

/** The value now, if there is one. */
export function latest(series: Series): number | null {
  return series.values.at(-1) ?? null;
}

/** Whether there is anything to see. */
export function isEmpty(columns: Columns): boolean {
  return columns.down_mbps.every((value) => value === null);
}

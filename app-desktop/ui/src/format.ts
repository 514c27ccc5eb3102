// Figures in words, as the command line words them: powers of 1,000, one digit behind the point.

import { strings } from "./strings";

const UNITS = ["kB", "MB", "GB", "TB", "PB"];

export function bytes(count: number): string {
  if (count < 1000) return `${count} B`;
  let amount = count / 1000;
  let unit = 0;
  while (amount >= 999.95 && unit + 1 < UNITS.length) {
    amount /= 1000;
    unit += 1;
  }
  return `${amount.toFixed(1)} ${UNITS[unit]}`;
}

export function duration(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  const days = Math.floor(whole / 86_400);
  const hours = Math.floor(whole / 3600) % 24;
  const minutes = Math.floor(whole / 60) % 60;
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  if (minutes > 0) return `${minutes} min ${whole % 60} s`;
  return `${whole} s`;
}

/** A moment of the past, as this language writes it. */
export function moment(unixSeconds: number): string {
  return new Date(unixSeconds * 1000).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

export function mbps(rate: number): string {
  return `${rate.toFixed(1)} ${strings.units.mbps}`;
}

export function ms(time: number | null): string {
  return time === null ? "–" : `${time.toFixed(1)} ${strings.units.ms}`;
}

export function percent(share: number | null, digits = 1): string {
  return share === null ? "–" : `${share.toFixed(digits)} ${strings.units.percent}`;
}

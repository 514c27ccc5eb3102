import { describe, expect, it } from "vitest";
import { isEmpty, latest, loss, rate } from "./charts";
import { bytes, duration, percent } from "./format";
import { repairLocale } from "./locale";
import { rows } from "./networks";
import { fill, strings } from "./strings";
import { network, NO_HISTORY, path, snapshot } from "./testing";
import type { Columns } from "./types";

describe("figures", () => {
  it("have the unit that fits, as on the command line", () => {
    expect([0, 999, 1000, 999_949, 999_950, 1_500_000_000].map(bytes)).toEqual([
      "0 B", "999 B", "1.0 kB", "999.9 kB", "1.0 MB", "1.5 GB",
    ]);
    expect([0.4, 61, 3725, 90_000].map(duration)).toEqual(["0 s", "1 min 1 s", "1 h 2 min", "1 d 1 h"]);
    expect([percent(null), percent(4.96), percent(50, 0)]).toEqual(["–", "5.0 %", "50 %"]);
  });
});

describe("texts", () => {
  it("take values and keep what they do not know", () => {
    expect(fill("by {relay} for {time}", { relay: "home" })).toBe("by home for {time}");
  });
  it("are none of them empty", () => {
    const all = (value: unknown): string[] => (typeof value === "string" ? [value] : Object.values(value as object).flatMap(all));
    expect(all(strings).filter((text) => text.trim() === "")).toEqual([]);
  });
});

describe("rows of networks", () => {
  it("say what each does and its share of all bytes", () => {
    const way = (bytes: number) => ({ bytes, rate_mbps: 0, loss_percent: 0, queue_ms: 0 });
    const paths = [
      path("wlan0", { down: way(300) }),
      path("wwan0", { role: "backup", up: way(100) }),
      path("eth0", { state: "down", problem: "silent" }),
    ];
    const networks = [network("wlan0"), network("wwan0"), network("eth0"), network("usb0", { present: false }), network("lan0", { role: "never", problem: "never used" })];
    const found = rows(snapshot({ paths, networks }));
    expect(found.map((row) => row.word)).toEqual(["up", "ready", "down", "absent", "unused"]);
    const connecting = snapshot({ state: "connecting", paths: [], networks: [network("wlan0"), network("lan0", { role: "never" })] });
    expect(rows(connecting).map((row) => row.word)).toEqual(["tried", "unused"]);
    expect(found.map((row) => row.share)).toEqual([75, 25, 0, null, null]);
    expect(found.map((row) => row.problem)).toEqual([null, null, "silent", null, "never used"]);
  });
});

describe("charts", () => {
  const columns: Columns = {
    unix_s: [1, 2], down_mbps: [90, 95], up_mbps: [1, null], down_lost_percent: [0.1, 0.2], up_lost_percent: [null, null],
    networks: [{ name: "wlan0", down_mbps: [50, 51], up_mbps: [1, 1], down_loss_percent: [5, 4], up_loss_percent: [0, 0], queue_ms: [1, 2] }],
  };
  it("draw each network and what programs get, in the chosen direction", () => {
    expect(rate(columns, "down").map((line) => [line.name, latest(line)])).toEqual([["wlan0", 51], [strings.total, 95]]);
    expect(rate(columns, "up").map(latest)).toEqual([1, null]);
    expect(loss(columns, "down").map(latest)).toEqual([4, 0.2]);
  });
  it("tell lines apart without colours", () => {
    const two = { ...columns, networks: [columns.networks[0]!, { ...columns.networks[0]!, name: "wwan0" }] };
    const looks = rate(two, "down").map((line) => `${line.dash}/${line.width}`);
    expect(new Set(looks).size).toBe(looks.length);
  });
  it("know when there is nothing to see", () => {
    expect(isEmpty(NO_HISTORY)).toBe(true);
    expect(isEmpty(columns)).toBe(false);
  });
});

describe("the locale", () => {
  it("C, which number formats do not know, becomes one that they know", () => {
    const c = { language: "C", languages: ["C"] } as unknown as Navigator;
    repairLocale(c);
    expect(c.language).toBe("en-US");
    expect(() => new Intl.NumberFormat(c.language)).not.toThrow();
  });
  it("that works is left alone", () => {
    const german = { language: "de-DE", languages: ["de-DE"] } as unknown as Navigator;
    repairLocale(german);
    expect(german.language).toBe("de-DE");
  });
});

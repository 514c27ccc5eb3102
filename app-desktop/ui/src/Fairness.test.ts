import { fireEvent, render, screen, waitFor } from "@testing-library/svelte";
import { describe, expect, it, vi } from "vitest";
import App from "./App.svelte";
import { jain, kept, label, problems, rates, speeds } from "./measured";
import { strings } from "./strings";
import { fairnessRun, fakeBackend, speedRun, state } from "./testing";
import type { Measuring, Run } from "./types";

// There is no canvas here.
vi.mock("uplot", () => ({ default: class { setData() {} setSize() {} destroy() {} } }));
vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} });

const still: Measuring = { running: null, problem: null, latest: null, kept_problem: null };

async function open(measuring: Partial<Measuring> = {}, some = {}, answers = {}) {
  const of = (next: Partial<Measuring>) => state({ measuring: { ...still, ...next }, ...some });
  const fake = fakeBackend(of(measuring), answers);
  render(App, { backend: fake.backend });
  await fireEvent.click(await screen.findByRole("button", { name: strings.nav_fairness }));
  return { ...fake, measuring: (next: Partial<Measuring>) => fake.tell(of(next)) };
}

describe("the fairness view", () => {
  it("measures what is chosen, for as long as is chosen", async () => {
    const fake = await open();
    await fireEvent.click(screen.getByDisplayValue("speed"));
    await fireEvent.change(screen.getByLabelText(strings.measure_length), { target: { value: "30" } });
    await fireEvent.click(screen.getByRole("button", { name: strings.measure_start }));
    expect(fake.calls).toEqual(['measure("speed", 30)']);
    expect(screen.getByText(strings.runs_none)).toBeTruthy();
  });

  it("says how far it is, and cancels", async () => {
    const progress = { step: "wlan0: TCP alone", number: 1, of: 3, mbps: 41.23, left_s: 22.5 };
    const fake = await open({ running: { what: "fairness", seconds: 10, progress } });
    expect(screen.getByText("1 of 3: wlan0: TCP alone")).toBeTruthy();
    expect(screen.getByText("41.2 Mbit/s, about 23 s left")).toBeTruthy();
    expect((screen.getByRole("progressbar") as HTMLProgressElement).value).toBeCloseTo(0.25);
    expect(screen.queryByRole("button", { name: strings.measure_start })).toBeNull();
    await fireEvent.click(screen.getByText(strings.cancel));
    expect(fake.calls).toEqual(["cancelMeasuring()"]);
  });

  it("measures nothing without a connection, and says so", async () => {
    await open({}, { condition: "off", life: "off", snapshot: null });
    expect((screen.getByRole("button", { name: strings.measure_start }) as HTMLButtonElement).disabled).toBe(true);
    expect(screen.getByText(strings.measure_off)).toBeTruthy();
  });

  it("says why nothing came of it, and what cannot be kept", async () => {
    const why = "the relay offers no measuring: its owner has switched it off";
    const fake = await open({ problem: why });
    expect(screen.getByRole("alert").textContent).toContain(why);
    fake.measuring({ kept_problem: "earlier measurements cannot be read" });
    await waitFor(() => expect(screen.getByRole("alert").textContent).toBe("earlier measurements cannot be read"));
  });

  it("shows the newest run with its bars and marks, and others when they are chosen", async () => {
    const runs: Run[] = [fairnessRun()];
    const fake = await open({ latest: 1 }, {}, { runs: async () => [...runs] });
    expect(await screen.findByText("75 %")).toBeTruthy();
    expect(screen.getByText("0.94")).toBeTruthy();
    expect(screen.getByText("The paper: over 90 %, in this mode, at 0.1 % loss (tables 6 and 7).")).toBeTruthy();
    expect(screen.getByText("wwan0: no TCP connection")).toBeTruthy();
    runs.unshift(speedRun());
    fake.measuring({ latest: 2 });
    expect(await screen.findByText("60.0 Mbit/s")).toBeTruthy();
    expect(screen.queryByText("75 %")).toBeNull();
    await fireEvent.change(screen.getByLabelText(strings.run), { target: { value: "1" } });
    expect(await screen.findByText("75 %")).toBeTruthy();
  });
});

describe("what was measured", () => {
  it("is bars with the paper's value as a mark, and gaps where nothing could be measured", () => {
    const { bars, mark } = kept(fairnessRun());
    expect(bars.map((bar) => [bar.name, bar.value])).toEqual([["wlan0", 75], ["wwan0", null]]);
    expect([mark, jain(fairnessRun()).mark]).toEqual([{ value: 90 }, { value: 0.9 }]);
    expect(kept(fairnessRun({ paper_kept: { percent: 28.6, at_least: false } })).about).toContain("The paper: 28.6 %,");
    expect(kept(fairnessRun({ paper_kept: null }))).toMatchObject({ mark: null, about: strings.tcp_kept_paper_none });
  });

  it("is tables of figures", () => {
    expect(rates(fairnessRun()).rows).toEqual([
      { name: "wlan0", cells: ["40.0 Mbit/s", "30.0 Mbit/s", "50.0 Mbit/s"] },
      { name: "wwan0", cells: ["–", "–", "20.0 Mbit/s"] },
    ]);
    const [alone, all] = speeds(speedRun()).rows;
    expect(alone).toEqual({ name: "wlan0", cells: ["47.3 Mbit/s", "–", "20.1 ms", "23.4 ms", "–", "0.50 %", "–"] });
    expect(all?.name).toBe("wlan0 + wwan0 (bicast)");
    expect(problems(speedRun())).toEqual(["wlan0: hardly anything came through"]);
  });

  it("has a line in the list that tells one from the other", () => {
    expect(label(fairnessRun())).toContain("Fairness, Bicast (both directions), home");
    expect(label(fairnessRun({ mode: "single" }))).toContain(strings.mode_single);
    expect(label(speedRun())).toContain("Speed, home");
  });
});

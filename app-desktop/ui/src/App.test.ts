import { fireEvent, render, screen, waitFor, within } from "@testing-library/svelte";
import { describe, expect, it, vi } from "vitest";
import App from "./App.svelte";
import { strings } from "./strings";
import { fakeBackend, network, path, snapshot, state } from "./testing";

// There is no canvas here; what is drawn is charts.ts's, which is tested as data.
vi.mock("uplot", () => ({ default: class { setData() {} setSize() {} destroy() {} } }));
vi.stubGlobal("ResizeObserver", class { observe() {} disconnect() {} });

function show(first = state(), answers = {}) {
  const fake = fakeBackend(first, answers);
  render(App, { backend: fake.backend });
  return fake;
}

describe("home", () => {
  it("says that it is connected only when the controller says so", async () => {
    const fake = show();
    expect((await screen.findByRole("heading", { level: 1 })).textContent).toBe(strings.condition.connected);
    expect(screen.getByText("through the relay home for 2 min 5 s")).toBeTruthy();
    fake.tell(state({ condition: "unreachable", snapshot: snapshot({ state: "connecting", problem: "the relay does not answer" }) }));
    await waitFor(() => expect(screen.getByRole("heading", { level: 1 }).textContent).toBe(strings.condition.unreachable));
    expect(screen.getByText("the relay does not answer")).toBeTruthy();
    expect(screen.queryByText(/^through the relay/)).toBeNull();
  });

  it("has one switch, which connects and disconnects", async () => {
    const fake = show();
    const button = await screen.findByRole("switch");
    expect(button.getAttribute("aria-checked")).toBe("true");
    await fireEvent.click(button);
    fake.tell(state({ life: "off", condition: "off", snapshot: null }));
    await waitFor(() => expect(button.getAttribute("aria-checked")).toBe("false"));
    await fireEvent.click(button);
    await waitFor(() => expect(fake.calls).toEqual(["disconnect()", "connect()"]));
  });

  it("changes the mode and the direction", async () => {
    const fake = show();
    await fireEvent.click(await screen.findByLabelText(strings.direction_server));
    await fireEvent.click(screen.getByDisplayValue("single"));
    expect(fake.calls).toEqual(['setMode({"mode":"bicast","bicast":"server"})', 'setMode({"mode":"single"})']);
  });

  it("shows every network with its figures, and sets its role and caps", async () => {
    const wwan = network("wwan0", { kind: "cellular", used_month_bytes: 4e9, cap_monthly_bytes: 1e10, cap: "near" });
    const fake = show(state({ snapshot: snapshot({ networks: [wwan], paths: [path("wwan0", { down: { bytes: 1, rate_mbps: 40, loss_percent: 5.02, queue_ms: 0 } })] }) }));
    const card = within(await screen.findByRole("article", { name: "wwan0" }));
    expect(card.getByText("5.0 %")).toBeTruthy();
    expect(card.getByText("4.0 GB of 10.0 GB")).toBeTruthy();
    expect(card.getByText(strings.cap_near)).toBeTruthy();
    await fireEvent.change(card.getByRole("combobox"), { target: { value: "backup" } });
    await fireEvent.click(card.getByText(strings.limits));
    await fireEvent.input(card.getByLabelText(strings.cap_daily), { target: { value: "500 MB" } });
    await fireEvent.click(card.getByText(strings.save));
    await waitFor(() => expect(fake.calls).toEqual(['setNetwork("wwan0", "role", "backup")', 'setNetwork("wwan0", "cap-daily", "500 MB")']));
  });

  it("says what is wrong and what to do for each way of being without a connection", async () => {
    const fake = show();
    await screen.findByRole("switch");
    for (const condition of ["no_network", "captive", "refused", "unreachable"] as const) {
      fake.tell(state({ condition, snapshot: snapshot({ state: "connecting", problem: `problem of ${condition}` }) }));
      await screen.findByText(strings.condition[condition]);
      expect(screen.getByText(strings.advice[condition])).toBeTruthy();
      expect(screen.getByText(`problem of ${condition}`)).toBeTruthy();
    }
  });

  it("shows what a command that failed has to say", async () => {
    const answers = { setMode: () => Promise.reject({ kind: "other", text: "the client is gone" }) };
    show(state(), answers);
    await fireEvent.click(await screen.findByDisplayValue("single"));
    expect((await screen.findByRole("alert")).textContent).toContain("the client is gone");
  });
});

describe("pairing", () => {
  const unpaired = state({ life: "off", condition: "unpaired", snapshot: null, relays: [], kept: null });
  const link = "tandem://relay.example:4433/?v=1&pin=x&token=y";

  it("is the first thing to do, and says whose link it is before it is kept", async () => {
    const fake = show(unpaired);
    await fireEvent.input(await screen.findByLabelText(strings.link), { target: { value: link } });
    expect(await screen.findByText("A relay at relay.example:4433, for “laptop”.")).toBeTruthy();
    await fireEvent.click(screen.getByRole("button", { name: strings.pair }));
    await waitFor(() => expect(fake.calls).toEqual([`pair(${JSON.stringify(link)}, null, false)`]));
  });

  it("says what is wrong with a text that is no link, and keeps nothing", async () => {
    show(unpaired, { readLink: () => Promise.reject({ kind: "other", text: "a pairing link begins with tandem://" }) });
    await fireEvent.input(await screen.findByLabelText(strings.link), { target: { value: "hello" } });
    expect(await screen.findByText("a pairing link begins with tandem://")).toBeTruthy();
    expect((screen.getByRole("button", { name: strings.pair }) as HTMLButtonElement).disabled).toBe(true);
  });

  it("asks before a file takes the place of a keychain that is not there", async () => {
    const asked: boolean[] = [];
    const pair = async (_link: string, _name: string | null, allowFile: boolean) => {
      asked.push(allowFile);
      if (!allowFile) throw { kind: "no_keychain", text: "no secret service" };
    };
    show(unpaired, { pair });
    await fireEvent.input(await screen.findByLabelText(strings.link), { target: { value: link } });
    await screen.findByText(/for “laptop”/);
    await fireEvent.click(screen.getByRole("button", { name: strings.pair }));
    await fireEvent.click(await screen.findByText(strings.keychain_file));
    await waitFor(() => expect(asked).toEqual([false, true]));
  });

  it("of a link that another program opened waits for the user", async () => {
    let waiting: string | null = null;
    const fake = show(state(), { takeLink: async () => { const taken = waiting; waiting = null; return taken; } });
    await screen.findByRole("switch");
    waiting = link;
    fake.arrive();
    expect(await screen.findByText(strings.link_arrived)).toBeTruthy();
    expect((screen.getByLabelText(strings.link) as HTMLTextAreaElement).value).toBe(link);
    expect(fake.calls).toEqual([]);
  });
});

describe("relays", () => {
  it("are renamed, and removed only after a second press", async () => {
    const fake = show();
    await fireEvent.click(await screen.findByRole("button", { name: strings.nav_relays }));
    const card = within(await screen.findByRole("article", { name: "home" }));
    await fireEvent.click(card.getByText(strings.rename));
    await fireEvent.input(card.getByLabelText(strings.new_name), { target: { value: "attic" } });
    await fireEvent.click(card.getByText(strings.save));
    await fireEvent.click(card.getByText(strings.remove));
    expect(fake.calls).toEqual(['renameRelay("home", "attic")']);
    await fireEvent.click(within(card.getByRole("alertdialog")).getByText(strings.remove));
    await waitFor(() => expect(fake.calls.at(-1)).toBe('removeRelay("home")'));
  });
});

describe("settings", () => {
  it("are kept one by one, and a desktop without proxy settings says so", async () => {
    const fake = show(state({ system_proxy: { desktop: null, set: false, problem: null } }));
    await fireEvent.click(await screen.findByRole("button", { name: strings.nav_settings }));
    await fireEvent.click(await screen.findByLabelText(strings.set_notify));
    await waitFor(() => expect(fake.calls[0]).toContain('"notify":false'));
    expect(screen.getByText(strings.set_proxy_none)).toBeTruthy();
  });
});

describe("live", () => {
  it("draws what the controller remembers and tells it in words", async () => {
    const history = async () => ({
      unix_s: [1], down_mbps: [93.5], up_mbps: [1], down_lost_percent: [0.2], up_lost_percent: [0],
      networks: [{ name: "wlan0", down_mbps: [60], up_mbps: [1], down_loss_percent: [5.1], up_loss_percent: [0], queue_ms: [3] }],
    });
    show(state(), { history });
    await fireEvent.click(await screen.findByRole("button", { name: strings.nav_live }));
    expect(await screen.findByText(`${strings.total}: now 93.5 Mbit/s`)).toBeTruthy();
    expect(screen.getByText(`${strings.left}: now 0.2 %`)).toBeTruthy();
  });
});

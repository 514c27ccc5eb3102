// What a network's row shows: the network, the path over it if there is one, and what follows from both.

import type { Network, Path, Snapshot } from "./types";

export type PathWord = "up" | "ready" | "joining" | "down" | "absent" | "tried" | "unused";

export interface Row {
  network: Network;
  path: Path | null;
  word: PathWord;
  /** Why it carries nothing or less, in words; the engine's. */
  problem: string | null;
  /** Its part of all bytes of the session on all networks, in percent; `null` while nothing was carried. */
  share: number | null;
}

export function rows(snapshot: Snapshot): Row[] {
  const carried = (path: Path) => path.up.bytes + path.down.bytes;
  const all = snapshot.paths.reduce((sum, path) => sum + carried(path), 0);
  return snapshot.networks.map((network) => {
    const path = snapshot.paths.find((path) => path.interface === network.name) ?? null;
    return {
      network,
      path,
      word: word(network, path, snapshot.state),
      problem: network.problem ?? (path && path.state !== "up" ? path.problem : null),
      share: path && all > 0 ? (100 * carried(path)) / all : null,
    };
  });
}

function word(network: Network, path: Path | null, state: Snapshot["state"]): PathWord {
  if (!network.present) return "absent";
  // There are no paths before there is a session.
  if (!path && state === "connecting" && network.role !== "never" && !network.problem) return "tried";
  if (!path || path.role === "gone") return "unused";
  if (path.state === "up") return path.role === "backup" ? "ready" : "up";
  return path.state;
}

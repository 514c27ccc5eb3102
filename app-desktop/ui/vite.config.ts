import { svelte } from "@sveltejs/vite-plugin-svelte";
import { svelteTesting } from "@testing-library/svelte/vite";
import { defineConfig } from "vitest/config";

export default defineConfig({
  plugins: [svelte(), svelteTesting()],
  // WebKitGTK of Debian 12 and newer; the same engines elsewhere.
  build: { target: "safari16", outDir: "dist" },
  server: { fs: { allow: [".."] } },
  // Slow machines get their time; what fails, fails on every machine.
  test: { environment: "happy-dom", include: ["src/**/*.test.ts"], testTimeout: 60_000, setupFiles: ["src/setup.ts"] },
});

// The locale first: what is imported after it may need it while loading.
import "./locale";
import "./app.css";
import "uplot/dist/uPlot.min.css";
import { mount } from "svelte";
import App from "./App.svelte";
import { tauriBackend } from "./backend";

const target = document.getElementById("app");
if (!target) throw new Error("index.html has no place for the app");
mount(App, { target, props: { backend: tauriBackend() } });

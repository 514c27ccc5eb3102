// How long tests wait for what they look for.

import { configure } from "@testing-library/svelte";

configure({ asyncUtilTimeout: 20_000 });

// Svelte without extras: runes everywhere, styles in files (the policy of the page allows no others).
import { vitePreprocess } from '@sveltejs/vite-plugin-svelte';

export default {
  preprocess: vitePreprocess(),
  compilerOptions: { runes: true, css: 'external' },
};

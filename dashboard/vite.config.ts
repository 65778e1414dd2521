// How the page is built: one script, one style sheet, hashed names, each also packed for the wire.
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig, type Plugin } from 'vite';

/** Packs every script and style. The program holds only the packed form, and unpacks it for clients that do not. */
function packed(): Plugin {
  return {
    name: 'packed',
    apply: 'build',
    writeBundle(options) {
      const folder = join(options.dir ?? 'dist', 'assets');
      for (const name of readdirSync(folder)) {
        if (!/\.(js|css)$/.test(name)) continue;
        const bytes = gzipSync(readFileSync(join(folder, name)), { level: 9 });
        writeFileSync(join(folder, `${name}.gz`), bytes);
        rmSync(join(folder, name));
      }
    },
  };
}

const server = process.env.DEADSTOP_URL ?? 'http://127.0.0.1:4141';

export default defineConfig({
  plugins: [svelte(), packed()],
  build: { target: 'es2022', assetsInlineLimit: 0, modulePreload: false, reportCompressedSize: true },
  server: { proxy: { '/api': { target: server, changeOrigin: true, headers: { origin: server } } } },
});

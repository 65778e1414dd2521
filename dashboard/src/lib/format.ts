// How things are written for people: money, times, counts, and texts that came from agents.

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

const pad = (number: number, width = 2) => String(number).padStart(width, '0');

/** Dollars with as many digits as they need: `$0.0042`, `$1.20`, `$12,400`. */
export function usd(amount: number): string {
  if (!Number.isFinite(amount)) return '–';
  const size = Math.abs(amount);
  const digits = size === 0 || size >= 1000 ? 0 : size >= 1 ? 2 : size >= 0.01 ? 3 : size >= 0.0001 ? 5 : 7;
  const text = size.toLocaleString('en-US', {
    minimumFractionDigits: size === 0 ? 2 : Math.min(digits, 2),
    maximumFractionDigits: size === 0 ? 2 : digits,
  });
  return `${amount < 0 ? '-' : ''}$${text}`;
}

export function count(number: number): string {
  return Number.isFinite(number) ? Math.round(number).toLocaleString('en-US') : '–';
}

/** Large counts, shortly: `1.2k`, `3.4M`. */
export function short(number: number): string {
  const size = Math.abs(number);
  if (size < 1000) return count(number);
  const [divided, unit] = size < 999_500 ? [number / 1e3, 'k'] : size < 999_500_000 ? [number / 1e6, 'M'] : [number / 1e9, 'G'];
  return `${divided.toFixed(Math.abs(divided) < 10 ? 1 : 0)}${unit}`;
}

/** One decimal, always, as scores are written: `7.0`. */
export function score(number: number): string {
  return number.toFixed(1);
}

/** `7.0/5`: what was measured, and what it was measured against. */
export function scoreOf(measured: number, threshold: number): string {
  return `${score(measured)}/${Number.isInteger(threshold) ? threshold : score(threshold)}`;
}

/** A length of time: `840 ms`, `12.4 s`, `3 min 5 s`, `2 h 10 min`, `3 d 4 h`. */
export function duration(ms: number): string {
  if (!Number.isFinite(ms) || ms < 0) return '–';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9950 ? 1 : 0)} s`;
  const two = (large: number, unit: string, small: number, smaller: string) =>
    small > 0 ? `${large} ${unit} ${small} ${smaller}` : `${large} ${unit}`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return two(Math.floor(seconds / 60), 'min', seconds % 60, 's');
  if (seconds < 86_400) return two(Math.floor(seconds / 3600), 'h', Math.floor((seconds % 3600) / 60), 'min');
  return two(Math.floor(seconds / 86_400), 'd', Math.floor((seconds % 86_400) / 3600), 'h');
}

/** What is left of a time limit, as on a clock: `4:32`, `1:00:05`. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  const rest = pad(seconds % 60);
  return hours > 0 ? `${hours}:${pad(minutes)}:${rest}` : `${minutes}:${rest}`;
}

/** How long ago: `now`, `12 s ago`, `3 min ago`, `2 d ago`. */
export function ago(at: number, now: number): string {
  const ms = now - at;
  if (ms < 3000) return 'now';
  if (ms < MINUTE) return `${Math.floor(ms / 1000)} s ago`;
  if (ms < HOUR) return `${Math.floor(ms / MINUTE)} min ago`;
  if (ms < DAY) return `${Math.floor(ms / HOUR)} h ago`;
  return `${Math.floor(ms / DAY)} d ago`;
}

export function clock(at: number): string {
  const date = new Date(at);
  return `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}`;
}

export function clockMillis(at: number): string {
  return `${clock(at)}.${pad(new Date(at).getMilliseconds(), 3)}`;
}

export function date(at: number): string {
  const day = new Date(at);
  return `${day.getFullYear()}-${pad(day.getMonth() + 1)}-${pad(day.getDate())}`;
}

/** A day of the costs, which are kept in UTC. */
export function utcDate(at: number): string {
  return new Date(at).toISOString().slice(0, 10);
}

/** An hour of the costs, in UTC as well. */
export function utcHour(at: number): string {
  return `${utcDate(at)} ${new Date(at).toISOString().slice(11, 13)}:00`;
}

/** When, in full. */
export function moment(at: number): string {
  return `${date(at)} ${clock(at)}`;
}

export function percent(ratio: number): string {
  return `${Math.round(ratio * 100)}%`;
}

/** `1 call`, `2 calls`. */
export function plural(number: number, word: string): string {
  return `${count(number)} ${word}${number === 1 ? '' : 's'}`;
}

/** Characters that turn text around, hide in it or do not print. New lines and tabs may stay. */
// eslint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]/gu;

/**
 * A text from outside as it is, except that what would hide or reorder it is written out. Showing it
 * as text and never as HTML is Svelte's part; this is so that a reader sees what is really there.
 */
export function plain(text: string): string {
  return text.replace(HIDDEN, (hidden) => `⟨U+${(hidden.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`);
}

/** The same on one line and not too long. */
export function line(text: string, most = 200): string {
  const flat = plain(text.slice(0, most * 4).replace(/\s+/g, ' ').trim());
  return flat.length > most ? `${flat.slice(0, most - 1)}…` : flat;
}

/** The same, cut in the middle: of ids the end matters as much as the beginning. */
export function middle(text: string, most: number): string {
  const flat = plain(text.replace(/\s+/g, ' ').trim());
  if (flat.length <= most) return flat;
  const end = Math.floor((most - 1) / 2);
  return `${flat.slice(0, most - 1 - end)}…${flat.slice(flat.length - end)}`;
}

/** A code such as `kill_switch` as words. */
export function words(code: string): string {
  const text = code.replace(/[_-]+/g, ' ').trim();
  return text.charAt(0).toUpperCase() + text.slice(1);
}

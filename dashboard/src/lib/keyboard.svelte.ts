// Keys that work everywhere: `/` and Cmd-K find, `?` helps, `g` and a letter goes somewhere.
import { router } from './router';

export const PLACES: [key: string, address: string, name: string][] = [
  ['n', '/', 'Now'],
  ['a', '/agents', 'Agents'],
  ['s', '/sessions', 'Sessions'],
  ['r', '/requests', 'Requests'],
  ['i', '/incidents', 'Incidents'],
  ['p', '/approvals', 'Approvals'],
  ['c', '/costs', 'Costs'],
  ['l', '/alerts', 'Alerts'],
  ['u', '/audit', 'Audit'],
  ['e', '/settings', 'Settings'],
];

class Keyboard {
  finding = $state(false);
  helping = $state(false);
  #going = 0;

  pressed = (event: KeyboardEvent): void => {
    if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      this.finding = true;
      return;
    }
    if (event.metaKey || event.ctrlKey || event.altKey || typing(event.target)) return;
    if (document.querySelector('dialog[open]')) return;
    if (Date.now() - this.#going < 1500) {
      this.#going = 0;
      const place = PLACES.find(([key]) => key === event.key);
      if (place) {
        event.preventDefault();
        router.go(place[1]);
        return;
      }
    }
    if (event.key === '/') this.finding = true;
    else if (event.key === '?') this.helping = true;
    else if (event.key === 'g') this.#going = Date.now();
    else return;
    event.preventDefault();
  };
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export const keyboard = new Keyboard();

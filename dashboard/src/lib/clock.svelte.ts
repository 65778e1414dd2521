// The time, as state: what says "3 s ago" reads it and stays true.
class Clock {
  now = $state(Date.now());
  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now();
    }, 1000);
  }
}

export const time = new Clock();

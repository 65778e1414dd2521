// Light, dark, or as the system has it. Kept in the browser; nothing else is.
export type Theme = 'system' | 'light' | 'dark';

const KEY = 'deadstop.theme';

function kept(): Theme {
  try {
    const value = localStorage.getItem(KEY);
    return value === 'light' || value === 'dark' ? value : 'system';
  } catch {
    return 'system';
  }
}

class ThemeChoice {
  choice = $state<Theme>(kept());
  #system = matchMedia('(prefers-color-scheme: dark)');
  #systemDark = $state(this.#system.matches);
  dark = $derived(this.choice === 'dark' || (this.choice === 'system' && this.#systemDark));

  constructor() {
    this.#system.addEventListener('change', () => (this.#systemDark = this.#system.matches));
    this.#show();
  }

  set(choice: Theme): void {
    this.choice = choice;
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // A browser that keeps nothing shows the choice until the page is closed.
    }
    this.#show();
  }

  #show(): void {
    if (this.choice === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.choice;
  }
}

export const theme = new ThemeChoice();

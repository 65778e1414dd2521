// Short notices to the user: what was done, or why it failed.
export interface Notice {
  id: number;
  text: string;
  bad: boolean;
}

class Notices {
  all = $state<Notice[]>([]);
  #next = 1;

  say(text: string, how: 'fine' | 'bad' = 'fine'): void {
    const id = this.#next++;
    this.all = [...this.all.slice(-2), { id, text, bad: how === 'bad' }];
    setTimeout(() => this.dismiss(id), how === 'bad' ? 9000 : 5000);
  }

  dismiss(id: number): void {
    this.all = this.all.filter((notice) => notice.id !== id);
  }
}

export const notices = new Notices();

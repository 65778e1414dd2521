// How harm is shown: the badge of a severity, and of what a preset would do about it.

/** The badge of a severity. */
export const severe = (severity: string): string => (severity === 'catastrophic' ? 'stopped' : severity === 'serious' ? 'warn' : '');

/** The badge of a verdict. */
export function judged(verdict: string): string {
  if (verdict === 'block' || verdict === 'kill') return 'stopped';
  if (verdict === 'allow') return 'ok';
  return 'warn';
}

// Light, dark or as the system has it; and what the reader chose otherwise.

export type Theme = 'system' | 'light' | 'dark'

const KEY = 'croupier.theme'
const listeners = new Set<() => void>()

export function theme(): Theme {
  const stored = localStorage.getItem(KEY)
  return stored === 'light' || stored === 'dark' ? stored : 'system'
}

export function chooseTheme(choice: Theme): void {
  if (choice === 'system') localStorage.removeItem(KEY)
  else localStorage.setItem(KEY, choice)
  applyTheme()
}

export function applyTheme(): void {
  const choice = theme()
  if (choice === 'system') delete document.documentElement.dataset['theme']
  else document.documentElement.dataset['theme'] = choice
  for (const listener of listeners) listener()
}

// Calls the listener when colours may have changed: the canvas reads them again.
export function onThemeChange(listener: () => void): () => void {
  listeners.add(listener)
  const queries = ['(prefers-color-scheme: dark)', '(forced-colors: active)', '(prefers-contrast: more)'].map((query) =>
    matchMedia(query),
  )
  for (const query of queries) query.addEventListener('change', listener)
  return () => {
    listeners.delete(listener)
    for (const query of queries) query.removeEventListener('change', listener)
  }
}

// The colours of the style sheet as a canvas understands them: a variable may be a light-dark() that is not resolved.
export function coloursOf(element: HTMLElement): (variable: string) => string {
  return (variable) => {
    const own = element.style.color
    element.style.color = `var(${variable})`
    const resolved = getComputedStyle(element).color
    element.style.color = own
    return resolved
  }
}

export function reducedMotion(): boolean {
  return matchMedia('(prefers-reduced-motion: reduce)').matches
}

// Starts the page: language, theme, the stream of the data, then the frame.

import { render } from 'preact'
import { onUnauthorized } from './api.ts'
import { App } from './app.tsx'
import './debug.ts'
import { chosenLocale, useCatalogue } from './i18n.ts'
import { navigate } from './router.ts'
import { start } from './stream.ts'
import { applyTheme } from './theme.ts'

async function main(): Promise<void> {
  applyTheme()
  onUnauthorized(() => {
    if (location.pathname === '/login') return
    const back = location.pathname + location.search
    navigate(back === '/' ? '/login' : `/login?back=${encodeURIComponent(back)}`)
  })
  void start()
  const locale = chosenLocale()
  if (locale === 'ru') useCatalogue('ru', (await import('./ru.ts')).RU)
  document.documentElement.lang = locale
  const root = document.getElementById('app')
  if (root) render(<App />, root)
}

void main()

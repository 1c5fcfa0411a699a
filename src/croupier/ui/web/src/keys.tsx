// Single-key commands, the palette and the help. All can be switched off in the menu (WCAG 2.1.4).

import type { ComponentChildren } from 'preact'
import { useEffect, useMemo, useRef, useState } from 'preact/hooks'
import { Dialog } from './components.tsx'
import { msg, t } from './i18n.ts'
import { currentModel } from './model.ts'
import { currentRoute, navigate, setQuery } from './router.ts'

const STORED = 'croupier.keys'

export function keysEnabled(): boolean {
  return localStorage.getItem(STORED) !== 'off'
}

export function setKeysEnabled(enabled: boolean): void {
  if (enabled) localStorage.removeItem(STORED)
  else localStorage.setItem(STORED, 'off')
}

export type KeyHandler = (event: KeyboardEvent) => void
const handlers = new Map<string, KeyHandler[]>()

// A page handles a key while it is shown; the newest handler wins.
export function useKey(key: string, handler: KeyHandler): void {
  const latest = useRef(handler)
  latest.current = handler
  useEffect(() => {
    const own: KeyHandler = (event) => latest.current(event)
    handlers.set(key, [...(handlers.get(key) ?? []), own])
    return () => void handlers.set(key, (handlers.get(key) ?? []).filter((one) => one !== own))
  }, [key])
}

// `t`: a picture is shown as a table of the same data. The choice is in the address.
export function useTableView(): [boolean, (table: boolean) => void] {
  const table = new URLSearchParams(location.search).get('view') === 'table'
  const choose = (next: boolean) => setQuery({ view: next ? 'table' : null })
  useKey('t', () => choose(!table))
  return [table, choose]
}

export const HELP: [key: string, text: string][] = [
  ['/', msg('Search cards')],
  ['← ↑ → ↓', msg('Move on the map or in a table')],
  ['Enter', msg('Open the card or the row')],
  ['Space', msg('Select the card or the row')],
  ['+ − 0', msg('Zoom in, zoom out, show all')],
  ['Shift', msg('Drag with Shift to select many cards')],
  ['a', msg('Assign the selected cards')],
  ['d', msg('Drain the selected cards')],
  ['e', msg('Explain why a pod waits')],
  ['w', msg('What if')],
  ['t', msg('Show the picture as a table')],
  [':', msg('Command palette')],
  ['?', msg('This list')],
  ['Esc', msg('Close, or end the selection')],
]

function typing(target: EventTarget | null): boolean {
  const element = target as HTMLElement | null
  return Boolean(element?.closest?.('input:not([type=checkbox]):not([type=radio]), textarea, select, [contenteditable]'))
}

export function Keys() {
  const [shown, setShown] = useState<'help' | 'palette' | null>(null)
  useEffect(() => {
    const pressed = (event: KeyboardEvent) => {
      if (!keysEnabled() || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return
      if (typing(event.target) || document.querySelector('dialog[open]')) return
      const own = handlers.get(event.key)?.at(-1)
      if (own) own(event)
      else if (event.key === '/') document.getElementById('search')?.focus()
      else if (event.key === '?') setShown('help')
      else if (event.key === ':') setShown('palette')
      else if (event.key === 'w') navigate('/what-if')
      else if (event.key === 'e') explain()
      else return
      event.preventDefault()
    }
    document.addEventListener('keydown', pressed)
    return () => document.removeEventListener('keydown', pressed)
  }, [])
  const close = () => setShown(null)
  return (
    <>
      <Dialog title={t('Keys')} open={shown === 'help'} onClose={close}>
        <dl class="keys">
          {HELP.map(([key, text]) => (
            <div key={key}>
              <dt>
                <kbd>{key}</kbd>
              </dt>
              <dd>{t(text)}</dd>
            </div>
          ))}
        </dl>
        <p class="muted">{t('Search terms: {terms}', { terms: 'pod:ns/x  pool:a  node:n  zone:z  model:h100  mode:mig  state:faulted  free>=50  -pool:a' })}</p>
      </Dialog>
      <Dialog title={t('Commands')} open={shown === 'palette'} onClose={close}>
        <Palette onClose={close} />
      </Dialog>
    </>
  )
}

// The longest waiter, or the list of all.
function explain(): void {
  const waiting = [...currentModel().waiting].sort(([, a], [, b]) => (a.since ?? Infinity) - (b.since ?? Infinity))
  const first = waiting[0]
  navigate(first && currentRoute().path === '/waiting' ? `/pods/${first[0]}` : '/waiting')
}

interface Choice {
  id: string
  text: string
  detail: string
  path: string
}

const PAGES: [string, string][] = [
  ['/', msg('Overview')], ['/cards', msg('Cards')], ['/pools', msg('Pools')], ['/waiting', msg('Waiting pods')],
  ['/confirm', msg('Waiting for you')], ['/what-if', msg('What if')], ['/reservations', msg('Reservations')],
  ['/market', msg('CPU market')], ['/audit', msg('Audit')], ['/history', msg('History')], ['/me', msg('What I may do')],
]
const SHOWN_CHOICES = 12

function* choices(text: string): Generator<Choice> {
  const model = currentModel()
  const fits = (name: string) => name.toLowerCase().includes(text)
  for (const [path, title] of PAGES) if (fits(t(title)) || fits(title)) yield { id: path, text: t(title), detail: t('page'), path }
  if (!text) return
  for (const pool of model.pools.keys()) if (fits(pool)) yield { id: `pool ${pool}`, text: pool, detail: t('pool'), path: `/pools/${encodeURIComponent(pool)}` }
  for (const pod of model.waiting.keys()) if (fits(pod)) yield { id: `waiting ${pod}`, text: pod, detail: t('waiting pod'), path: `/pods/${pod}` }
  for (const node of model.nodes.keys()) if (fits(node)) yield { id: `node ${node}`, text: node, detail: t('node'), path: `/cards?q=${encodeURIComponent(`node:${node}`)}` }
  for (const holder of model.holders.values()) {
    const pod = `${holder.namespace}/${holder.pod}`
    if (fits(pod)) yield { id: holder.key, text: pod, detail: t('pod'), path: `/pods/${pod}` }
  }
  for (const card of model.cards.keys()) if (fits(card)) yield { id: `card ${card}`, text: card, detail: t('card'), path: `/cards/${encodeURIComponent(card)}` }
}

function Palette({ onClose }: { onClose: () => void }): ComponentChildren {
  const [text, setText] = useState('')
  const [active, setActive] = useState(0)
  const found = useMemo(() => {
    const list: Choice[] = []
    for (const choice of choices(text.trim().toLowerCase())) {
      list.push(choice)
      if (list.length === SHOWN_CHOICES) break
    }
    return list
  }, [text])
  const open = (choice: Choice | undefined) => {
    if (!choice) return
    onClose()
    navigate(choice.path)
  }
  const keyDown = (event: KeyboardEvent) => {
    if (event.key === 'ArrowDown') setActive(Math.min(active + 1, found.length - 1))
    else if (event.key === 'ArrowUp') setActive(Math.max(active - 1, 0))
    else if (event.key === 'Enter') open(found[active])
    else return
    event.preventDefault()
  }
  return (
    <div class="palette">
      <input
        type="text"
        role="combobox"
        aria-label={t('Page, pool, pod, node or card')}
        aria-expanded={found.length > 0}
        aria-controls="palette-list"
        aria-activedescendant={found[active] ? `palette-${active}` : undefined}
        placeholder={t('Page, pool, pod, node or card')}
        value={text}
        autofocus
        onInput={(event) => {
          setText(event.currentTarget.value)
          setActive(0)
        }}
        onKeyDown={keyDown}
      />
      <ul id="palette-list" role="listbox" aria-label={t('Found')}>
        {found.map((choice, place) => (
          <li key={choice.id} id={`palette-${place}`} role="option" aria-selected={place === active} onClick={() => open(choice)}>
            <span class="name">{choice.text}</span> <span class="muted">{choice.detail}</span>
          </li>
        ))}
      </ul>
    </div>
  )
}

// The frame of every page: rail, top bar, and the page that belongs to the address.

import { createElement } from 'preact'
import type { ComponentChildren, FunctionComponent } from 'preact'
import { useEffect, useRef, useState } from 'preact/hooks'
import { useMe } from './answers.ts'
import { post } from './api.ts'
import { ErrorNote, useSeconds } from './components.tsx'
import { ActionDialog } from './dialogs/action.tsx'
import { clock, number } from './format.ts'
import { chooseLocale, chosenLocale, msg, t } from './i18n.ts'
import type { Locale } from './i18n.ts'
import { Keys, keysEnabled, setKeysEnabled } from './keys.tsx'
import { now, useModel } from './model.ts'
import { forYou } from './offers.ts'
import { CardPage } from './pages/card.tsx'
import { CardsPage } from './pages/cards.tsx'
import { OverviewPage } from './pages/overview.tsx'
import { Link, navigate, useRoute } from './router.ts'
import { chooseTheme, theme } from './theme.ts'
import type { Theme } from './theme.ts'

type Build = (...parts: string[]) => ComponentChildren

type More = typeof import('./pages/more.ts')
let more: More | null = null

// A page that is fetched when it is first opened; the map and the cards come with the shell.
function later<Props extends object>(select: (pages: More) => FunctionComponent<Props>): FunctionComponent<Props> {
  return function Later(props) {
    const [, render] = useState(0)
    const [error, setError] = useState<unknown>(null)
    useEffect(() => {
      if (more) return
      import('./pages/more.ts').then(
        (pages) => {
          more = pages
          render(1)
        },
        // A new version of the page was installed, its old files are gone.
        () => setError(new Error(t('This part of the page could not be fetched. Reload the page.'))),
      )
    }, [])
    if (error) return <ErrorNote error={error} onRetry={() => location.reload()} />
    return more ? createElement(select(more), props) : <div class="page" aria-busy="true" />
  }
}

const AuditPage = later((pages) => pages.AuditPage)
const ConfirmPage = later((pages) => pages.ConfirmPage)
const HistoryBanner = later((pages) => pages.HistoryBanner)
const HistoryPage = later((pages) => pages.HistoryPage)
const LoginPage = later((pages) => pages.LoginPage)
const MarketNodePage = later((pages) => pages.MarketNodePage)
const MarketPage = later((pages) => pages.MarketPage)
const MePage = later((pages) => pages.MePage)
const PodPage = later((pages) => pages.PodPage)
const PoolPage = later((pages) => pages.PoolPage)
const PoolsPage = later((pages) => pages.PoolsPage)
const ReservationsPage = later((pages) => pages.ReservationsPage)
const WaitingPage = later((pages) => pages.WaitingPage)
const WhatIfPage = later((pages) => pages.WhatIfPage)

const ROUTES: [RegExp, Build][] = [
  [/^\/$/, () => <OverviewPage />],
  [/^\/cards$/, () => <CardsPage />],
  [/^\/cards\/([^/]+)$/, (card) => <CardPage key={card} card={card!} />],
  [/^\/confirm$/, () => <ConfirmPage />],
  [/^\/pools$/, () => <PoolsPage />],
  [/^\/pools\/([^/]+)$/, (pool) => <PoolPage key={pool} pool={pool!} />],
  [/^\/waiting$/, () => <WaitingPage />],
  [/^\/pods\/([^/]+)\/([^/]+)$/, (namespace, name) => <PodPage key={`${namespace}/${name}`} namespace={namespace!} name={name!} />],
  [/^\/what-if$/, () => <WhatIfPage />],
  [/^\/reservations$/, () => <ReservationsPage />],
  [/^\/market$/, () => <MarketPage />],
  [/^\/market\/([^/]+)$/, (node) => <MarketNodePage key={node} node={node!} />],
  [/^\/audit$/, () => <AuditPage />],
  [/^\/history$/, () => <HistoryPage />],
  [/^\/me$/, () => <MePage />],
]

const RAIL: [path: string, title: string, sign: string][] = [
  ['/', msg('Overview'), '◱'],
  ['/cards', msg('Cards'), '▦'],
  ['/pools', msg('Pools'), '◫'],
  ['/waiting', msg('Waiting pods'), '◷'],
  ['/confirm', msg('Waiting for you'), '✓'],
  ['/what-if', msg('What if'), '?'],
  ['/reservations', msg('Reservations'), '⚑'],
  ['/market', msg('CPU market'), '≋'],
  ['/audit', msg('Audit'), '⚠'],
  ['/history', msg('History'), '↺'],
]

export function App() {
  const { path } = useRoute()
  if (path === '/login') return <LoginPage />
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        {t('Skip to the content')}
      </a>
      <TopBar />
      <Rail path={path} />
      <main id="main" tabIndex={-1}>
        <Past path={path} />
        <PageAt path={path} />
      </main>
      <Keys />
      <ActionDialog />
    </>
  )
}

// The history page has its own way back to now.
function Past({ path }: { path: string }) {
  const { status } = useModel()
  return status === 'history' && path !== '/history' ? <HistoryBanner /> : null
}

function skip(event: MouseEvent): void {
  event.preventDefault()
  document.getElementById('main')?.focus()
}

function PageAt({ path }: { path: string }) {
  for (const [pattern, build] of ROUTES) {
    const match = pattern.exec(path)
    if (match) return <>{build(...match.slice(1).map(decodeURIComponent))}</>
  }
  return <NotFound path={path} />
}

function NotFound({ path }: { path: string }) {
  return (
    <div class="page">
      <h1>{t('No such page')}</h1>
      <p>{t('There is no page at {path}.', { path })}</p>
      <p>
        <Link to="/">{t('Go to the overview')}</Link>
      </p>
    </div>
  )
}

function Rail({ path }: { path: string }) {
  const model = useModel()
  const counts: Record<string, number> = {
    '/waiting': model.waiting.size,
    '/confirm': forYou(model),
    '/audit': [...model.findings.values()].reduce((sum, findings) => sum + findings.length, 0),
  }
  const rail = useRef<HTMLElement>(null)
  useEffect(() => rail.current?.querySelector('[aria-current]')?.scrollIntoView({ block: 'nearest', inline: 'center' }), [path])
  return (
    <nav class="rail" aria-label={t('Pages')} ref={rail}>
      <ul>
        {RAIL.map(([to, title, sign]) => {
          const here = to === '/' ? path === '/' : path === to || path.startsWith(`${to}/`) || (to === '/waiting' && path.startsWith('/pods/'))
          const count = counts[to] ?? 0
          return (
            <li key={to}>
              <Link to={to} aria-current={here ? 'page' : undefined}>
                <span class="rail-sign" aria-hidden="true">
                  {sign}
                </span>
                <span class="rail-title">{t(title)}</span>
                {count > 0 && <span class={to === '/audit' ? 'count bad' : 'count'}>{number(count)}</span>}
              </Link>
            </li>
          )
        })}
      </ul>
    </nav>
  )
}

function TopBar() {
  const model = useModel()
  const { path, query } = useRoute()
  const [text, setText] = useState('')
  const shared = path === '/cards' ? (query.get('q') ?? '') : null
  useEffect(() => {
    if (shared !== null) setText(shared)
  }, [shared])
  const search = (event: Event) => {
    event.preventDefault()
    const rest = path === '/cards' ? new URLSearchParams(query) : new URLSearchParams()
    rest.set('q', text)
    if (!text) rest.delete('q')
    navigate(`/cards${rest.size ? `?${rest}` : ''}`)
  }
  const cluster = model.cluster
  return (
    <header class="top">
      <Link class="brand" to="/" aria-label={t('Croupier, overview')}>
        <img src="/favicon.svg" alt="" width="22" height="22" />
        <span>Croupier</span>
      </Link>
      <span class="cluster" title={cluster ? `${cluster.server} ${cluster.version}` : undefined}>
        {cluster?.context || cluster?.server || ''}
      </span>
      <form class="search" role="search" onSubmit={search}>
        <label class="hidden" for="search">
          {t('Search cards')}
        </label>
        <input
          id="search"
          type="search"
          value={text}
          autocomplete="off"
          spellcheck={false}
          placeholder={t('Search: name, pod:ns/x, pool:a, free>=50, state:faulted')}
          onInput={(event) => setText(event.currentTarget.value)}
        />
      </form>
      <Freshness />
      <Menu />
    </header>
  )
}

// How current the page is. Always visible.
function Freshness() {
  const model = useModel()
  useSeconds()
  const { status } = model
  const texts = {
    loading: t('loading'),
    live: t('live'),
    'catching up': t('catching up'),
    'cut off': t('cut off'),
    history: t('history'),
  }
  const age = now() - model.at
  const since = status === 'cut off' && model.at > 0 ? t('cut off since {time}', { time: clock(model.at) }) : texts[status]
  const asOf = status === 'live' && age < 10 ? clock(now()) : clock(model.at)
  return (
    <div class={`fresh ${status.replace(' ', '-')}`} role="status" aria-label={`${t('Data')}: ${since}`}>
      <span class="dot" aria-hidden="true" />
      <span class="fresh-state">{since}</span>
      {model.at > 0 && status !== 'cut off' && (
        <span class="fresh-at" aria-hidden="true">
          {status === 'history' ? t('as of {time}', { time: clock(model.at) }) : asOf}
        </span>
      )}
    </div>
  )
}

function Menu() {
  const me = useMe()
  const [, again] = useState(0)
  const reload = (choice: Locale) => {
    chooseLocale(choice)
    location.reload()
  }
  return (
    <details class="menu" onKeyDown={closeOnEscape}>
      <summary aria-label={me ? t('Menu of {user}', { user: me.user }) : t('Menu')}>
        <span class="who">{me?.user ?? '…'}</span>
        <span aria-hidden="true"> ▾</span>
      </summary>
      <div class="menu-body">
        <Link to="/me" onClick={closeMenu}>
          {t('What I may do')}
        </Link>
        <label for="menu-theme">{t('Theme')}</label>
        <select
          id="menu-theme"
          value={theme()}
          onChange={(event) => {
            chooseTheme(event.currentTarget.value as Theme)
            again((count) => count + 1)
          }}
        >
          <option value="system">{t('as the system')}</option>
          <option value="light">{t('light')}</option>
          <option value="dark">{t('dark')}</option>
        </select>
        <label for="menu-language">{t('Language')}</label>
        <select id="menu-language" value={chosenLocale()} onChange={(event) => reload(event.currentTarget.value as Locale)}>
          <option value="en" lang="en">English</option>
          <option value="ru" lang="ru">Русский</option>
        </select>
        <label class="check-line">
          <input
            type="checkbox"
            checked={keysEnabled()}
            onChange={(event) => {
              setKeysEnabled(event.currentTarget.checked)
              again((count) => count + 1)
            }}
          />
          {t('Single-key commands (? lists them)')}
        </label>
        {me?.mode === 'token' && (
          <button type="button" onClick={() => void post('/logout', {}).then(() => location.assign('/login'))}>
            {t('Sign out')}
          </button>
        )}
      </div>
    </details>
  )
}

function closeOnEscape(event: KeyboardEvent & { currentTarget: HTMLDetailsElement }): void {
  if (event.key !== 'Escape') return
  event.currentTarget.open = false
  event.currentTarget.querySelector('summary')?.focus()
}

function closeMenu(event: Event): void {
  ;(event.currentTarget as HTMLElement).closest('details')?.removeAttribute('open')
}

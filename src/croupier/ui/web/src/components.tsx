// Small parts that every page uses.

import type { ComponentChildren, RefObject } from 'preact'
import { useEffect, useId, useLayoutEffect, useRef, useState } from 'preact/hooks'
import { useMe } from './answers.ts'
import { clock, dateTime, duration, UNKNOWN } from './format.ts'
import { t } from './i18n.ts'
import { now, useModel } from './model.ts'
import { Link } from './router.ts'

export { Link }

// A page: sets the title of the document and has the one h1.
export function Page(props: { title: string; lead?: ComponentChildren; actions?: ComponentChildren; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${props.title} · Croupier`
  }, [props.title])
  return (
    <div class="page">
      <header class="page-head">
        <div>
          <h1>{props.title}</h1>
          {props.lead && <p class="lead">{props.lead}</p>}
        </div>
        {props.actions && <div class="page-actions">{props.actions}</div>}
      </header>
      {props.children}
    </div>
  )
}

// A titled part of a page.
// Why a map has no cards: the viewer may see none, or there are none yet.
export function NoCards() {
  const me = useMe()
  const limited = me !== null && !me.sees.everything && !me.sees.cards
  return (
    <Empty>
      {limited
        ? t('You see the cards that pods of your namespaces hold, and the cards of pools that your namespaces may use. There is none now.')
        : t('No cards are known yet. Nodes with the agent report their cards.')}
    </Empty>
  )
}

export function Section(props: { title: string; aside?: ComponentChildren; class?: string; children?: ComponentChildren }) {
  const id = useId()
  return (
    <section class={`panel ${props.class ?? ''}`} aria-labelledby={id}>
      <header class="panel-head">
        <h2 id={id}>{props.title}</h2>
        {props.aside}
      </header>
      {props.children}
    </section>
  )
}

// `pod` is namespace/name, or the key of a holder (namespace/name/uid).
export function PodLink({ pod }: { pod: string }) {
  const [namespace = '', name = ''] = pod.split('/')
  if (!name || namespace === 'hidden') return <span class="muted">{t('hidden')}</span>
  return (
    <Link class="name" to={`/pods/${encodeURIComponent(namespace)}/${encodeURIComponent(name)}`}>
      {namespace}/{name}
    </Link>
  )
}

// A holder by its number. Without a row the reader may not see its name, or names are not loaded yet.
export function HolderLink({ number }: { number: number }) {
  const model = useModel()
  const holder = model.holders.get(number)
  if (!holder) return <span class="muted">{model.named ? t('a pod that you may not list') : t('loading names')}</span>
  return <PodLink pod={holder.key} />
}

export function CardLink({ card }: { card: string }) {
  return (
    <Link class="name" to={`/cards/${encodeURIComponent(card)}`}>
      {card}
    </Link>
  )
}

export function NodeName({ node }: { node: string }) {
  if (!node) return <span class="muted">{UNKNOWN}</span>
  return (
    <Link class="name" to={`/cards?q=${encodeURIComponent(`node:${node}`)}`}>
      {node}
    </Link>
  )
}

export function PoolLink({ pool }: { pool: string }) {
  if (!pool) return <span class="muted">{t('no pool')}</span>
  return (
    <Link class="name" to={`/pools/${encodeURIComponent(pool)}`}>
      {pool}
    </Link>
  )
}

// Used, booked and free as one bar. Unknown is hatched, never 0.
export function Bar(props: { total: number | null; used: number | null; booked?: number | null; label?: string }) {
  const { total, used } = props
  const booked = props.booked ?? 0
  const unknown = total === null || used === null
  const of = (amount: number) => (total ? `${Math.max(0, Math.min(100, (100 * amount) / total))}%` : '0%')
  const text = props.label ?? (unknown ? t('unknown') : t('{used} of {total} used, {booked} booked', { used, booked, total }))
  return (
    <span class={unknown ? 'bar unknown' : 'bar'} role="img" aria-label={text} title={text}>
      {!unknown && <span class="bar-used" style={{ width: of(used) }} />}
      {!unknown && booked > 0 && <span class="bar-booked" style={{ width: of(booked) }} />}
    </span>
  )
}

const tickers = new Set<() => void>()
let ticking: ReturnType<typeof setInterval> | undefined

// Re-renders once a second while the page is visible; one timer for all ages.
export function useSeconds(): void {
  const [, render] = useState(0)
  useEffect(() => {
    const tick = () => render((count) => count + 1)
    tickers.add(tick)
    ticking ??= setInterval(() => {
      if (!document.hidden) for (const one of tickers) one()
    }, 1000)
    return () => {
      tickers.delete(tick)
      if (tickers.size === 0) {
        clearInterval(ticking)
        ticking = undefined
      }
    }
  }, [])
}

// A time of less than a second ago, also by a clock that is behind, needs no number.
function ago(seconds: number): string {
  return seconds < 1 ? t('just now') : duration(seconds)
}

// How long ago a time is ("3 min"), by the server's clock.
export function Age({ at }: { at: number | null | undefined }) {
  useSeconds()
  if (!at) return <span class="muted">{UNKNOWN}</span>
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={dateTime(at)}>
      {ago(now() - at)}
    </time>
  )
}

// A time of day with its age ("since 12:04:31, 3 min"), or the date if it is older than a day.
export function Since({ at }: { at: number | null | undefined }) {
  useSeconds()
  if (!at) return <span class="muted">{t('since an unknown time')}</span>
  const age = now() - at
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={dateTime(at)}>
      {t('since {time} ({age})', { time: age > 86400 ? dateTime(at) : clock(at), age: ago(age) })}
    </time>
  )
}

// How long until something ends, or how long ago it ended.
export function Until({ at }: { at: number | null | undefined }) {
  useSeconds()
  if (!at) return <span class="muted">{t('never')}</span>
  const left = at - now()
  return (
    <time dateTime={new Date(at * 1000).toISOString()} title={dateTime(at)}>
      {left > 0 ? t('in {time}', { time: duration(left) }) : t('{time} ago', { time: duration(-left) })}
    </time>
  )
}

// A command line that equals an action, with a button to copy it; in a table only the button.
export function Command({ line, brief }: { line: string; brief?: boolean }) {
  const [copied, setCopied] = useState(false)
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(line)
      setCopied(true)
      setTimeout(() => setCopied(false), 1500)
    } catch {
      // No right to write the clipboard: the text can be selected.
    }
  }
  return (
    <span class="command">
      {!brief && <code lang="en" tabIndex={0}>{line}</code>}
      <button type="button" class={brief ? 'small' : 'small quiet'} title={brief ? line : undefined} onClick={copy} aria-label={t('Copy the command {line}', { line })}>
        {copied ? t('Copied') : t('Copy')}
      </button>
    </span>
  )
}

// A sentence of the server. It stays English in every language.
export function Sentence({ text }: { text: string }) {
  return text ? (
    <span class="sentence" lang="en">
      {text}
    </span>
  ) : null
}

export function Empty(props: { children: ComponentChildren }) {
  return <p class="empty">{props.children}</p>
}

// An error of a request: the server's sentence, or one of the catalogue, and a way to try again.
export function ErrorNote({ error, onRetry }: { error: unknown; onRetry?: () => void }) {
  if (!error) return null
  const text = error instanceof Error ? error.message : String(error)
  return (
    <div class="note error" role="alert">
      {/[а-яё]/i.test(text) ? <span>{text}</span> : <Sentence text={text} />}
      {onRetry && (
        <button type="button" class="small" onClick={onRetry}>
          {t('Try again')}
        </button>
      )}
    </div>
  )
}

export function Note(props: { kind?: 'info' | 'warning' | 'error'; children: ComponentChildren }) {
  return <div class={`note ${props.kind ?? 'info'}`}>{props.children}</div>
}

// A word with a colour and a shape: the state of something.
export function Badge(props: { kind?: 'ok' | 'warn' | 'bad' | 'info' | 'mute'; children: ComponentChildren }) {
  return <span class={`badge ${props.kind ?? 'mute'}`}>{props.children}</span>
}

// A native <dialog>: the browser keeps the focus inside and returns it; Escape closes.
export function Dialog(props: {
  title: string
  open: boolean
  onClose: () => void
  onKeyDown?: (event: KeyboardEvent) => void
  wide?: boolean
  children?: ComponentChildren
  footer?: ComponentChildren
}) {
  const ref = useRef<HTMLDialogElement>(null)
  const id = useId()
  useLayoutEffect(() => {
    const dialog = ref.current
    if (!dialog) return
    if (props.open && !dialog.open) dialog.showModal()
    if (!props.open && dialog.open) dialog.close()
  }, [props.open])
  if (!props.open) return null
  return (
    <dialog
      ref={ref}
      class={props.wide ? 'dialog wide' : 'dialog'}
      aria-labelledby={id}
      onClose={props.onClose}
      onKeyDown={props.onKeyDown}
      onClick={(event) => event.target === ref.current && props.onClose()}
    >
      <div class="dialog-body">
        <header class="dialog-head">
          <h2 id={id}>{props.title}</h2>
          <button type="button" class="quiet" aria-label={t('Close')} onClick={props.onClose}>
            ✕
          </button>
        </header>
        <div class="dialog-content">{props.children}</div>
        {props.footer && <footer class="dialog-foot">{props.footer}</footer>}
      </div>
    </dialog>
  )
}

// A labelled control. The child is a function that gets the id: <Field label="Reason">{(id) => <input id={id} />}</Field>
export function Field(props: { label: string; hint?: string; children: (id: string) => ComponentChildren }) {
  const id = useId()
  return (
    <div class="field">
      <label for={id}>{props.label}</label>
      {props.children(id)}
      {props.hint && <small>{props.hint}</small>}
    </div>
  )
}

// One of a few choices, as buttons in a row.
export function Choice<Id extends string>(props: {
  label: string
  value: Id
  options: readonly (readonly [Id, string])[]
  onChange: (value: Id) => void
}) {
  return (
    <div class="choice" role="group" aria-label={props.label}>
      <span class="choice-label" aria-hidden="true">
        {props.label}
      </span>
      {props.options.map(([id, title]) => (
        <button key={id} type="button" aria-pressed={id === props.value} onClick={() => props.onChange(id)}>
          {title}
        </button>
      ))}
    </div>
  )
}

// The size of an element, watched.
export function useSize(ref: RefObject<HTMLElement | null>): [number, number] {
  const [size, setSize] = useState<[number, number]>([0, 0])
  useLayoutEffect(() => {
    const element = ref.current
    if (!element) return
    const observer = new ResizeObserver(() => setSize([element.clientWidth, element.clientHeight]))
    observer.observe(element)
    setSize([element.clientWidth, element.clientHeight])
    return () => observer.disconnect()
  }, [])
  return size
}

// The form of the what-if page: its query, its body, and what its answer means for the cards. Pure.

import type { Card } from './wire.ts'

export const STRATEGIES = ['Spread', 'BinPack', 'LeastFragmentation'] as const
export const ASKS = ['whole', 'percent', 'mig', 'pool', 'yaml'] as const
export type Asks = (typeof ASKS)[number]

export interface Form {
  asks: Asks
  cards: number
  percent: number
  profile: string
  pool: string
  units: number
  namespace: string
  manifest: string
  copies: number
  strategies: string[]
  add: string[] // cards that count as if they had joined `addPool`
  addPool: string
}

export const EMPTY: Form = {
  asks: 'percent', cards: 1, percent: 50, profile: '1g.10gb', pool: '', units: 1, namespace: 'default', manifest: '',
  copies: 1, strategies: [], add: [], addPool: '',
}

export const LONGEST_IN_URL = 6000

const FIELDS: Record<Asks, (keyof Form)[]> = {
  whole: ['cards'],
  percent: ['cards', 'percent'],
  mig: ['cards', 'profile'],
  pool: ['pool', 'units'],
  yaml: ['manifest'],
}

function whole(text: string | null, fallback: number): number {
  const value = Number(text)
  return text && Number.isInteger(value) && value > 0 ? value : fallback
}

export function fromQuery(query: URLSearchParams): Form {
  const text = (name: string, fallback: string): string => query.get(name) ?? fallback
  const list = (name: string): string[] => (query.get(name) ?? '').split(',').filter(Boolean)
  const asks = ASKS.find((known) => known === query.get('asks'))
  return {
    asks: asks ?? (query.get('pool') ? 'pool' : EMPTY.asks),
    cards: whole(query.get('cards'), EMPTY.cards),
    percent: whole(query.get('percent'), EMPTY.percent),
    profile: text('profile', EMPTY.profile),
    pool: text('pool', EMPTY.pool),
    units: whole(query.get('units'), EMPTY.units),
    namespace: text('namespace', EMPTY.namespace),
    manifest: text('manifest', ''),
    copies: whole(query.get('copies'), EMPTY.copies),
    strategies: list('strategies').filter((name) => (STRATEGIES as readonly string[]).includes(name)),
    add: list('add'),
    addPool: text('addPool', ''),
  }
}

// Only what differs from the empty form, so that links stay short.
export function toQuery(form: Form): URLSearchParams {
  const query = new URLSearchParams({ asks: form.asks })
  for (const name of [...FIELDS[form.asks], 'namespace', 'copies', 'strategies', 'add', 'addPool'] as const) {
    const value = form[name]
    const text = Array.isArray(value) ? value.join(',') : String(value ?? '')
    if (!text || text === String(EMPTY[name])) continue
    if (name === 'manifest' && text.length > LONGEST_IN_URL) continue
    query.set(name, text)
  }
  return query
}

export function toBody(form: Form): Record<string, unknown> {
  const asked = form.asks === 'yaml' ? { manifest: form.manifest } : { form: asksOf(form) }
  return {
    ...asked,
    copies: form.copies,
    ...(form.strategies.length ? { strategies: form.strategies } : {}),
    ...(form.add.length && form.addPool ? { add: { cards: form.add, pool: form.addPool } } : {}),
  }
}

function asksOf(form: Form): Record<string, unknown> {
  const none = { cards: 0, percent: 0, profile: '', pool: '', units: 0, namespace: form.namespace }
  switch (form.asks) {
    case 'whole': return { ...none, cards: form.cards, percent: 100 }
    case 'mig': return { ...none, cards: form.cards, profile: form.profile }
    case 'pool': return { ...none, pool: form.pool, units: form.units }
    default: return { ...none, cards: form.cards, percent: form.percent }
  }
}

export interface Part { card: string; index: number | null; percent?: number; slices?: number; slots?: string[] }
export interface Placed { node: string; cards: Part[] }
export type Overlay = Map<string, { share?: number; slots?: string[] }>

// What the placed copies take, card by card.
export function overlay(placed: readonly Placed[]): Overlay {
  const taken: Overlay = new Map()
  for (const part of placed.flatMap((place) => place.cards)) {
    const before = taken.get(part.card) ?? {}
    taken.set(part.card, part.slots
      ? { ...before, slots: [...(before.slots ?? []), ...part.slots] }
      : { ...before, share: (before.share ?? 0) + (part.percent ?? part.slices ?? 0) })
  }
  return taken
}

export interface Left { wholeCards: number; percent: number; slots: number; slices: number }

// What is free on cards that serve, after `taken` is gone.
export function left(cards: Iterable<Card>, taken: Overlay): Left {
  const sum: Left = { wholeCards: 0, percent: 0, slots: 0, slices: 0 }
  for (const card of cards) {
    if (!serves(card)) continue
    const use = taken.get(card.id)
    if (card.mode === 'MIG') {
      sum.slots += card.free - (use?.slots?.length ?? 0)
      continue
    }
    const free = card.free - (use?.share ?? 0)
    if (card.mode === 'TimeSlice') sum.slices += free
    if (card.mode === 'Percent') sum.percent += free
    if (card.capacity > 0 && free === card.capacity) sum.wholeCards++
  }
  return sum
}

export function serves(card: Card): boolean {
  return card.mode !== 'none' && !card.unhealthy && !card.withdrawn && !card.drained && !card.retired
}

// Copies per node in the order of placement.
export function perNode(placed: readonly Placed[]): { node: string; copies: number; cards: Part[] }[] {
  const nodes = new Map<string, { node: string; copies: number; cards: Part[] }>()
  for (const place of placed) {
    const row = nodes.get(place.node) ?? { node: place.node, copies: 0, cards: [] }
    row.copies++
    row.cards.push(...place.cards)
    nodes.set(place.node, row)
  }
  return [...nodes.values()]
}

// What a colour of the map means. Each entry has the search term that shows only its cards. Pure.

import { freeRatio } from '../format.ts'
import { msg } from '../i18n.ts'
import type { Card } from '../wire.ts'

export type Colour = 'use' | 'pool' | 'state' | 'model'

export interface Entry {
  key: string
  title: string // a text of the catalogue, or a name
  named: boolean // the title is a name: not translated
  term: string // of the search language
  cards: number
}

// The state that matters most, in this order.
export const STATE_KEYS = [
  'faulted', 'retired', 'drained', 'silent', 'withdrawn', 'changing', 'unmanaged', 'assigned', 'reserved', 'unassigned', 'unknown',
] as const
export type StateKey = (typeof STATE_KEYS)[number]

export const STATE_TITLES: Record<StateKey, string> = {
  faulted: msg('Faulted'),
  retired: msg('Retired'),
  drained: msg('Drained'),
  silent: msg('Agent silent'),
  withdrawn: msg('Withdrawn'),
  changing: msg('Partitions are changing'),
  unmanaged: msg('Not managed'),
  assigned: msg('Assigned'),
  reserved: msg('Reserved'),
  unassigned: msg('Unassigned'),
  unknown: msg('Unknown'),
}

export function stateKey(card: Card): StateKey {
  if (card.state === 'Faulted' || card.unhealthy) return 'faulted'
  if (card.retired) return 'retired'
  if (card.drained) return 'drained'
  if (card.silent) return 'silent'
  if (card.withdrawn) return 'withdrawn'
  if (card.changing) return 'changing'
  if (card.unmanaged) return 'unmanaged'
  return card.state.toLowerCase() as StateKey
}

export type UseKey = 'full' | 'part' | 'free' | 'unknown'
export const USE_KEYS: readonly UseKey[] = ['full', 'part', 'free', 'unknown']

const USE: Record<UseKey, [title: string, term: string]> = {
  full: [msg('In use completely'), 'used>=100'],
  part: [msg('In use partly'), 'used>0 used<100'],
  free: [msg('Free'), 'free>=100'],
  unknown: [msg('Not in the ledger'), 'mode:none'],
}

export function useKey(card: Card): UseKey {
  const free = freeRatio(card)
  if (free === null) return 'unknown'
  return free <= 0.001 ? 'full' : free >= 0.999 ? 'free' : 'part'
}

export function categoryOf(card: Card, colour: Colour): string {
  switch (colour) {
    case 'use':
      return useKey(card)
    case 'pool':
      return card.pool
    case 'state':
      return stateKey(card)
    case 'model':
      return card.product
  }
}

function quoted(text: string): string {
  return /\s/.test(text) ? `"${text}"` : text
}

function entryOf(colour: Colour, key: string, cards: number): Entry {
  if (colour === 'use') return { key, title: USE[key as UseKey][0], named: false, term: USE[key as UseKey][1], cards }
  if (colour === 'state') return { key, title: STATE_TITLES[key as StateKey], named: false, term: `state:${key}`, cards }
  if (colour === 'pool') {
    return { key, title: key || msg('Without a pool'), named: key !== '', term: `pool:${key || 'none'}`, cards }
  }
  return { key, title: key || msg('Unknown model'), named: key !== '', term: `model:${quoted(key || '?')}`, cards }
}

export function legend(cards: Iterable<Card>, colour: Colour): Entry[] {
  const counts = new Map<string, number>()
  for (const card of cards) {
    const key = categoryOf(card, colour)
    counts.set(key, (counts.get(key) ?? 0) + 1)
  }
  const order: readonly string[] =
    colour === 'use' ? USE_KEYS : colour === 'state' ? STATE_KEYS : [...counts.keys()].sort((a, b) => (a === '' ? 1 : b === '' ? -1 : a < b ? -1 : 1))
  return order.filter((key) => counts.has(key)).map((key) => entryOf(colour, key, counts.get(key)!))
}

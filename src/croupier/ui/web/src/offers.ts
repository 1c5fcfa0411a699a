// Cards that wait for approval, grouped by the pool that wants them and by node. Pure.

import type { Model } from './model.ts'
import type { Card, PoolRow } from './wire.ts'

export interface Offer {
  pool: string
  nodes: { node: string; cards: Card[] }[]
  cards: string[]
}

export function offers(cards: Iterable<Card>): Offer[] {
  const pools = new Map<string, Map<string, Card[]>>()
  for (const card of cards) {
    for (const pool of card.offers) {
      const nodes = pools.get(pool) ?? new Map<string, Card[]>()
      nodes.set(card.node, [...(nodes.get(card.node) ?? []), card])
      pools.set(pool, nodes)
    }
  }
  return sorted(pools).map(([pool, nodes]) => {
    const groups = sorted(nodes).map(([node, list]) => ({ node, cards: list.sort((a, b) => a.index - b.index) }))
    return { pool, nodes: groups, cards: groups.flatMap((group) => group.cards.map((card) => card.id)) }
  })
}

function sorted<T>(map: Map<string, T>): [string, T][] {
  return [...map].sort(([a], [b]) => (a < b ? -1 : 1))
}

// Pools whose drift was repaired and that wait until a person confirms it.
export function unconfirmed(pools: ReadonlyMap<string, PoolRow>): [string, PoolRow][] {
  return [...pools].filter(([, pool]) => pool.conditions.some(
    (condition) => condition.type === 'Misconfigured' && condition.status === 'True'
      && condition.reason === 'AwaitingConfirmation',
  ))
}

// How many cards and pools wait for a person.
export function forYou({ cards, pools }: Pick<Model, 'cards' | 'pools'>): number {
  let count = unconfirmed(pools).length
  for (const card of cards.values()) if (card.offers.length > 0) count++
  return count
}

// window.croupier: the model of the page, read-only, for the console of the browser and for tests.
//
// ledger() has the shape of `croupier ledger NODE -o json`, so that the two can be compared.

import { currentModel, liveStatus, liveStore } from './model.ts'
import type { Model, Status } from './model.ts'
import type { Card } from './wire.ts'

export interface DebugBox {
  x: number // of the page, in CSS pixels
  y: number
  width: number
  height: number
}

interface Device {
  card: string
  index: number
  mode: string
  pool: string | null
  healthy: boolean
  capacity?: number
  free?: number
  holders?: { holder: string | null; share: number }[]
  slots?: { slot: string; profile: string; free: boolean; holder: string | null }[]
}

let boxes: (() => Record<string, DebugBox>) | null = null

// The map that is shown tells where its cards are; null when it goes.
export function showBoxes(reader: (() => Record<string, DebugBox>) | null): void {
  boxes = reader
}

function holder(number: number): string | null {
  return liveStore().holders.get(number)?.key ?? null
}

function device(card: Card): Device {
  const pool = card.ledgerPool || card.pool || null
  const known = { card: card.id, index: card.index, mode: card.mode, pool, healthy: card.healthy }
  if (card.mode === 'MIG') {
    const slots = card.slots.map(({ id, profile, holder: number }) => (
      { slot: id, profile, free: number === 0, holder: number === 0 ? null : holder(number) }
    ))
    return { ...known, slots }
  }
  const holders = card.holders.map(({ number, share }) => ({ holder: holder(number), share }))
  return { ...known, capacity: card.capacity, free: card.free, holders }
}

function ledger(): Record<string, Device[]> {
  const nodes: Record<string, Device[]> = {}
  for (const card of liveStore().cards.values()) {
    if (card.mode !== 'none') (nodes[card.node] ??= []).push(device(card))
  }
  for (const devices of Object.values(nodes)) devices.sort((a, b) => a.index - b.index)
  return nodes
}

export interface Debug {
  ledger(): Record<string, Device[]>
  model(): Model
  status(): Status
  seq(): string // process.number of the last delta
  boxes(): Record<string, DebugBox> // card to its place on the map, empty without a map
}

if (typeof window !== 'undefined') {
  const debug: Debug = {
    ledger,
    model: currentModel,
    status: liveStatus,
    seq: () => `${liveStore().process}.${liveStore().seq}`,
    boxes: () => boxes?.() ?? {},
  }
  ;(window as unknown as { croupier: Debug }).croupier = Object.freeze(debug)
}

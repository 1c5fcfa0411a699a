// Numbers, times and shares in the language of the reader.

import { t, tag } from './i18n.ts'
import type { Card } from './wire.ts'

const cache = new Map<string, Intl.NumberFormat | Intl.DateTimeFormat>()

function numbers(options: Intl.NumberFormatOptions): Intl.NumberFormat {
  const key = tag() + JSON.stringify(options)
  let format = cache.get(key) as Intl.NumberFormat | undefined
  if (!format) cache.set(key, (format = new Intl.NumberFormat(tag(), options)))
  return format
}

function dates(options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `date${tag()}${JSON.stringify(options)}`
  let format = cache.get(key) as Intl.DateTimeFormat | undefined
  if (!format) cache.set(key, (format = new Intl.DateTimeFormat(tag(), options)))
  return format
}

export const UNKNOWN = '–'

export function number(value: number | null | undefined, digits = 0): string {
  if (value === null || value === undefined || Number.isNaN(value)) return UNKNOWN
  return numbers({ maximumFractionDigits: digits }).format(value)
}

// A ratio of 0.5 is "50 %".
export function percent(ratio: number | null | undefined, digits = 0): string {
  if (ratio === null || ratio === undefined || !Number.isFinite(ratio)) return UNKNOWN
  return numbers({ style: 'percent', maximumFractionDigits: digits }).format(ratio)
}

export function clock(at: number | null | undefined): string {
  if (!at) return UNKNOWN
  return dates({ hour: '2-digit', minute: '2-digit', second: '2-digit' }).format(at * 1000)
}

// Without seconds, for an axis.
export function minute(at: number): string {
  return dates({ hour: '2-digit', minute: '2-digit' }).format(at * 1000)
}

export function dateTime(at: number | null | undefined): string {
  if (!at) return UNKNOWN
  return dates({
    year: 'numeric', month: 'short', day: 'numeric', hour: '2-digit', minute: '2-digit', second: '2-digit',
  }).format(at * 1000)
}

const UNITS: [Intl.NumberFormatOptions['unit'], number][] = [['day', 86400], ['hour', 3600], ['minute', 60], ['second', 1]]

// A duration in its largest unit, with the next one below ten: "3 min", "2 h 5 min".
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return UNKNOWN
  const whole = Math.max(0, Math.floor(seconds))
  const show = (unit: Intl.NumberFormatOptions['unit'], count: number) =>
    numbers({ style: 'unit', unit, unitDisplay: 'short', maximumFractionDigits: 0 }).format(count)
  for (const [place, [unit, size]] of UNITS.entries()) {
    if (whole < size && size > 1) continue
    const count = Math.floor(whole / size)
    const next = UNITS[place + 1]
    const rest = next ? Math.floor((whole % size) / next[1]) : 0
    if (next && rest > 0 && count < 10 && size > 60) return `${show(unit, count)} ${show(next[0], rest)}`
    return show(unit, count)
  }
  return show('second', 0)
}

// What a holder has of a card.
export function share(card: Pick<Card, 'mode' | 'capacity'>, amount: number): string {
  if (card.mode === 'Percent') return percent(amount / 100)
  if (card.mode === 'Exclusive') return t('the whole card')
  if (card.mode === 'TimeSlice') return t('{n} slice|{n} slices', { n: amount })
  return number(amount)
}

// What is free of a card, as a text; "–" if the ledger does not have the card.
export function freeText(card: Card): string {
  switch (card.mode) {
    case 'none':
      return UNKNOWN
    case 'Percent':
      return percent(card.free / 100)
    case 'Exclusive':
      return card.free > 0 ? t('free') : t('in use')
    case 'MIG':
      return t('{free} of {all} slots', { free: card.free, all: card.slots.length })
    case 'TimeSlice':
      return t('{free} of {all} slices', { free: card.free, all: card.capacity })
  }
}

// The free part of a card from 0 to 1, or null if unknown.
export function freeRatio(card: Card): number | null {
  if (card.mode === 'none') return null
  if (card.mode === 'MIG') {
    const size = card.slots.reduce((sum, slot) => sum + slot.size, 0)
    if (size === 0) return null
    return card.slots.reduce((sum, slot) => sum + (slot.holder === 0 ? slot.size : 0), 0) / size
  }
  return card.capacity > 0 ? card.free / card.capacity : null
}

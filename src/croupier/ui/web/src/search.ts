// The search language for cards: `pod:ns/x`, `pool:a`, `node:n`, `free>=50`, `state:faulted`, `mode:mig`, `model:h100`
// and plain text. All terms must match. Pure.

import { freeRatio } from './format.ts'
import type { Card, Holder, NodeRow } from './wire.ts'

export interface SearchContext {
  holder: (number: number) => Holder | undefined
  node: (name: string) => NodeRow | undefined
}

export type Test = (card: Card, context: SearchContext) => boolean

const FIELD = /^(pod|ns|namespace|pool|node|state|mode|model|zone|card|is):(.*)$/i
const FREE = /^(free|used)(>=|<=|>|<|=)(\d+(?:\.\d+)?)%?$/i

// Words that describe the state of a card, the same as in the legend.
export function stateWords(card: Card): string[] {
  const words = [card.state.toLowerCase()]
  if (card.unhealthy || card.state === 'Faulted') words.push('faulted', 'unhealthy')
  if (card.drained) words.push('drained')
  if (card.retired) words.push('retired')
  if (card.withdrawn) words.push('withdrawn')
  if (card.silent) words.push('silent')
  if (card.changing) words.push('changing')
  if (card.unmanaged) words.push('unmanaged')
  if (card.offers.length > 0) words.push('offered')
  return words
}

function holderNumbers(card: Card): number[] {
  return card.mode === 'MIG' ? card.slots.map((slot) => slot.holder).filter(Boolean) : card.holders.map((holder) => holder.number)
}

function podTest(text: string): Test {
  return (card, context) =>
    holderNumbers(card).some((number) => context.holder(number)?.key.toLowerCase().includes(text) ?? false)
}

function compareTest(field: string, operator: string, value: number): Test {
  return (card) => {
    const free = freeRatio(card)
    if (free === null) return false
    const amount = 100 * (field === 'free' ? free : 1 - free)
    switch (operator) {
      case '>=':
        return amount >= value - 1e-9
      case '<=':
        return amount <= value + 1e-9
      case '>':
        return amount > value + 1e-9
      case '<':
        return amount < value - 1e-9
      default:
        return Math.abs(amount - value) < 0.5
    }
  }
}

function fieldTest(field: string, text: string): Test {
  switch (field) {
    case 'pod':
      return podTest(text)
    case 'ns':
    case 'namespace':
      return (card, context) => holderNumbers(card).some((number) => context.holder(number)?.namespace.toLowerCase() === text)
    case 'pool':
      return text === '' || text === 'none' ? (card) => card.pool === '' : (card) => card.pool.toLowerCase() === text
    case 'node':
      return (card) => card.node.toLowerCase() === text || (text.endsWith('*') && card.node.toLowerCase().startsWith(text.slice(0, -1)))
    case 'mode':
      return (card) => card.mode.toLowerCase() === text
    case 'model':
      return text === '?' ? (card) => card.product === '' : (card) => card.product.toLowerCase().includes(text)
    case 'zone':
      return (card, context) => context.node(card.node)?.zone.toLowerCase() === text
    case 'card':
      return (card) => card.id.toLowerCase().includes(text)
    default:
      return (card) => stateWords(card).some((word) => word.startsWith(text))
  }
}

function textTest(text: string): Test {
  const pod = podTest(text)
  return (card, context) =>
    card.id.toLowerCase().includes(text) ||
    card.node.toLowerCase().includes(text) ||
    card.pool.toLowerCase().includes(text) ||
    card.product.toLowerCase().includes(text) ||
    pod(card, context)
}

// A term in quotes may have spaces: model:"H100 80GB".
function terms(query: string): string[] {
  return (query.match(/(?:[^\s"]+|"[^"]*")+/g) ?? []).map((term) => term.replaceAll('"', '')).filter(Boolean)
}

// null: an empty query, every card matches.
export function parse(query: string): Test | null {
  const tests = terms(query.trim()).map((term): Test => {
    const negated = term.startsWith('-') && term.length > 1
    const text = (negated ? term.slice(1) : term).toLowerCase()
    const field = FIELD.exec(text)
    const free = FREE.exec(text)
    const test = field
      ? fieldTest(field[1]!.toLowerCase(), field[2]!)
      : free
        ? compareTest(free[1]!.toLowerCase(), free[2]!, Number(free[3]))
        : textTest(text)
    return negated ? (card, context) => !test(card, context) : test
  })
  if (tests.length === 0) return null
  return (card, context) => tests.every((test) => test(card, context))
}

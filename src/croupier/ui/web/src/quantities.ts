// Amounts of CPU as Kubernetes writes them: `1200m`, `8`, `2500u`.

import { number } from './format.ts'

const FACTORS: Record<string, number> = { n: 1e-9, u: 1e-6, m: 1e-3, '': 1, k: 1e3 }

// The number of CPUs, or null if it is unknown or not a quantity.
export function cpus(written: string | number | null | undefined): number | null {
  if (typeof written === 'number') return Number.isFinite(written) ? written : null
  const match = /^(\d+(?:\.\d+)?)([numk]?)$/.exec(written ?? '')
  return match ? Number(match[1]) * FACTORS[match[2]!]! : null
}

// For people: CPUs, or thousandths of one below it.
export function shown(amount: number | null): string {
  if (amount === null) return number(null)
  if (amount !== 0 && amount < 1) return `${Math.round(amount * 1000)}m`
  return number(amount, 2)
}

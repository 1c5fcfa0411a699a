// The steps that a pool takes when its sharing changes, read from its conditions.

import type { Condition } from './wire.ts'

export type StepState = 'done' | 'now' | 'next' | 'failed'
export type Step = { name: StepName; state: StepState }
export type StepName =
  | 'Draining' | 'Rebuilding' | 'RollingBack' | 'RollingOut' | 'Serving'
  | 'Drifted' | 'Repairing' | 'Confirming' | 'Deleting' | 'Deleted'

export type Progress = {
  steps: Step[]
  // The step is the usual one: the pool serves and nothing changes.
  calm: boolean
  // The change takes longer than maintenance.deadline.
  stuck: boolean
  message: string
  since: number | null
  // How many cards are done, of how many, if the message tells it.
  counted: { done: number; of: number } | null
}

const CHANGE: StepName[] = ['Draining', 'Rebuilding', 'Serving']
const ROLLBACK: StepName[] = ['Draining', 'Rebuilding', 'RollingBack', 'Serving']
const DRIFT: StepName[] = ['Drifted', 'Repairing', 'Confirming', 'Serving']
const STUCK = 'GPUModeChangeStuck'

export function progress(conditions: readonly Condition[]): Progress {
  const named = (type: string): Condition | undefined => conditions.find((condition) => condition.type === type)
  const maintenance = named('Maintenance')
  const configured = named('Configured')
  const misconfigured = named('Misconfigured')
  if (misconfigured?.status === 'True' && ['Drifted', 'AwaitingConfirmation'].includes(misconfigured.reason)) {
    return drifted(misconfigured)
  }
  if (maintenance?.status === 'True') return closed(maintenance)
  if (configured?.status === 'False' && perCard(maintenance, configured)) {
    return told(line(['RollingOut', 'Serving'], 'RollingOut'), configured)
  }
  if (configured?.status === 'False' && configured.reason === 'RolledBack') {
    return told(failedAt(line(ROLLBACK, 'Serving'), 'Rebuilding'), configured)
  }
  const steps = line(CHANGE, 'Serving')
  if (configured?.status === 'False') return told(steps, configured)
  return { steps, calm: true, stuck: false, message: '', since: null, counted: null }
}

function perCard(maintenance: Condition | undefined, configured: Condition): boolean {
  return maintenance?.reason === 'PerCard' || configured.reason === 'RollingOut'
}

function closed(maintenance: Condition): Progress {
  const reason = maintenance.reason === STUCK ? stuckIn(maintenance.message) : maintenance.reason
  if (reason === 'RollingBack') return told(failedAt(line(ROLLBACK, 'RollingBack'), 'Rebuilding'), maintenance)
  if (reason === 'Deleting') return told(line(['Deleting', 'Deleted'], 'Deleting'), maintenance)
  if (reason === 'Rebuilding') return told(line(CHANGE, 'Rebuilding'), maintenance)
  return told(line(CHANGE, 'Draining'), maintenance)
}

// After the deadline the reason is GPUModeChangeStuck; only the sentence still names the step.
function stuckIn(message: string): StepName {
  if (message.includes('rolled back')) return 'RollingBack'
  if (message.includes('is deleted once')) return 'Deleting'
  return message.includes('are being changed') ? 'Rebuilding' : 'Draining'
}

function drifted(condition: Condition): Progress {
  const confirming = condition.reason === 'AwaitingConfirmation'
  const now = confirming ? 'Confirming' : condition.message.includes('are repaired') ? 'Repairing' : 'Drifted'
  return told(line(DRIFT, now), condition)
}

function line(names: readonly StepName[], now: StepName): Step[] {
  const at = names.indexOf(now)
  return names.map((name, index) => ({ name, state: index < at ? 'done' : index === at ? 'now' : 'next' }))
}

function failedAt(steps: Step[], name: StepName): Step[] {
  return steps.map((step) => (step.name === name ? { name, state: 'failed' } : step))
}

function told(steps: Step[], condition: Condition): Progress {
  const { message, since, reason } = condition
  const counts = /(\d+) of (\d+) cards are/.exec(message)
  const counted = counts ? { done: Number(counts[1]), of: Number(counts[2]) } : null
  return { steps, calm: false, stuck: reason === STUCK, message, since, counted }
}

// The most severe state of a pool in one word.
export interface Verdict {
  word: string
  severity: 'good' | 'busy' | 'bad' | 'unknown'
  message: string
}

const PROBLEMS = [['Misconfigured', 'bad'], ['Maintenance', 'busy'], ['CapacityLow', 'busy']] as const

export function verdict(conditions: readonly Condition[]): Verdict {
  for (const [word, severity] of PROBLEMS) {
    const found = conditions.find((condition) => condition.type === word && condition.status === 'True')
    if (!found) continue
    return { word, severity: found.reason === STUCK ? 'bad' : severity, message: found.message || found.reason }
  }
  const available = conditions.find((condition) => condition.type === 'Available')
  if (!available) return { word: 'Unknown', severity: 'unknown', message: '' }
  if (available.status !== 'True') {
    return { word: 'NotAvailable', severity: 'bad', message: available.message || available.reason }
  }
  const configured = conditions.find((condition) => condition.type === 'Configured' && condition.status === 'False')
  if (configured) return { word: 'Changing', severity: 'busy', message: configured.message || configured.reason }
  return { word: 'Available', severity: 'good', message: '' }
}

// The form for spec.allocation of a pool. It starts from what the pool has now.

import { Fragment } from 'preact'
import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { useGet } from '../answers.ts'
import { ErrorNote, Field } from '../components.tsx'
import { t } from '../i18n.ts'
import { layoutText, parseLayout, PROFILE } from '../orders.ts'
import type { Allocation } from '../orders.ts'

interface Props {
  pool: string
  value: Allocation | undefined
  locked: boolean
  onChange: (allocation: Allocation) => void
  onBefore: (allocation: Allocation | undefined) => void
}

const MODES: Allocation['mode'][] = ['Exclusive', 'MIG', 'TimeSlice', 'MPS']

export function modeText(mode: Allocation['mode']): string {
  switch (mode) {
    case 'Exclusive': return t('Exclusive: whole cards')
    case 'MIG': return t('MIG: parts with their own memory')
    case 'TimeSlice': return t('TimeSlice: pods take turns')
    case 'MPS': return t('MPS: percent of a card')
  }
}

export function SharingForm({ pool, value, locked, onChange, onBefore }: Props): JSX.Element {
  const answer = useGet<{ spec: { allocation: Allocation } }>(`/api/v1/pools/${encodeURIComponent(pool)}`)
  const now = answer.data?.spec.allocation
  const [layout, setLayout] = useState('')
  const [cut, setCut] = useState<'profile' | 'layout'>('profile')
  useEffect(() => {
    if (!now) return
    onBefore(now)
    const start = value ?? now
    if (start.migLayout) {
      setCut('layout')
      setLayout(layoutText(start.migLayout))
    }
    if (!value) onChange(now)
  }, [now])
  if (!now || !value) return <ErrorNote error={answer.error} />

  const kept = { rollout: value.rollout ?? 'WholePool', ...(value.maxDevicesPerNode ? { maxDevicesPerNode: value.maxDevicesPerNode } : {}) }
  const setMode = (mode: Allocation['mode']): void => {
    if (mode === 'MIG') onChange({ ...kept, mode, migProfile: now.migProfile ?? '1g.10gb' })
    else if (mode === 'TimeSlice') onChange({ ...kept, mode, timeSlice: now.timeSlice ?? { maxSlicesPerDevice: 8 } })
    else onChange({ ...kept, mode })
  }
  const writeLayout = (text: string): void => {
    setLayout(text)
    onChange({ ...kept, mode: 'MIG', migLayout: parseLayout(text) ?? [] })
  }
  const chooseCut = (choice: 'profile' | 'layout'): void => {
    setCut(choice)
    if (choice === 'profile') onChange({ ...kept, mode: 'MIG', migProfile: now.migProfile ?? '1g.10gb' })
    else writeLayout(layout || layoutText(now.migLayout ?? [{ profile: '1g.10gb', count: 7 }]))
  }
  const details = value.mode === 'MIG' ? (
    <div class="sub">
      <label class="radio">
        <input type="radio" name="cut" checked={cut === 'profile'} onChange={() => chooseCut('profile')} />{' '}
        {t('As many parts of one profile as fit')}
      </label>
      <label class="radio">
        <input type="radio" name="cut" checked={cut === 'layout'} onChange={() => chooseCut('layout')} />{' '}
        {t('Exactly these parts')}
      </label>
      {cut === 'profile'
        ? <Field label={t('MIG profile')} hint={t('For example 1g.10gb or 3g.40gb.')}>
          {(id) => <input id={id} value={value.migProfile ?? ''} aria-invalid={!PROFILE.test(value.migProfile ?? '')}
            onInput={(event) => onChange({ ...kept, mode: 'MIG', migProfile: event.currentTarget.value.trim() })} />}
        </Field>
        : <Field label={t('Layout')} hint={t('Profiles with counts, at most 7 parts: 1g.10gb:4, 3g.40gb:1')}>
          {(id) => <input id={id} value={layout} aria-invalid={!parseLayout(layout)}
            onInput={(event) => writeLayout(event.currentTarget.value)} />}
        </Field>}
    </div>
  ) : value.mode === 'TimeSlice' ? (
    <div class="sub">
      <Field label={t('Slices per card')}>
        {(id) => <input id={id} type="number" min={1} max={64} value={value.timeSlice?.maxSlicesPerDevice ?? 8}
          onInput={(event) => onChange({
            ...kept, mode: 'TimeSlice', timeSlice: { maxSlicesPerDevice: Number(event.currentTarget.value) },
          })} />}
      </Field>
    </div>
  ) : null
  return (
    <fieldset class="sharing" disabled={locked}>
      <legend>{t('How cards are shared')}</legend>
      {MODES.map((mode) => (
        <Fragment key={mode}>
          <label class="radio">
            <input type="radio" name="mode" checked={value.mode === mode} onChange={() => setMode(mode)} /> {modeText(mode)}
          </label>
          {mode === value.mode && details}
        </Fragment>
      ))}
      <Field label={t('Rollout')}>
        {(id) => (
          <select id={id} value={value.rollout ?? 'WholePool'}
            onChange={(event) => onChange({ ...value, rollout: event.currentTarget.value as 'WholePool' | 'PerCard' })}>
            <option value="WholePool">{t('WholePool: close the pool until it is idle')}</option>
            <option value="PerCard">{t('PerCard: card by card, the pool stays open')}</option>
          </select>
        )}
      </Field>
    </fieldset>
  )
}

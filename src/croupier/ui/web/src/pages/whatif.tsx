// Where a workload would be placed: a form or YAML, strategies side by side, drawn on the map. Nothing is written.

import type { ComponentChildren, JSX } from 'preact'
import { useEffect, useMemo, useState } from 'preact/hooks'
import { usePosted } from '../answers.ts'
import { Choice, Command, Empty, ErrorNote, Field, NodeName, Note, Page, Section } from '../components.tsx'
import { number } from '../format.ts'
import { t } from '../i18n.ts'
import { FleetMap } from '../map/map.tsx'
import { useModel } from '../model.ts'
import { navigate, useRoute } from '../router.ts'
import { fromQuery, left, LONGEST_IN_URL, overlay, perNode, STRATEGIES, toBody, toQuery } from '../what-if.ts'
import type { Asks, Form, Left, Part, Placed } from '../what-if.ts'
import { Why } from './pod.tsx'
import type { Explanation } from './pod.tsx'

interface Result {
  strategy: string
  copies: number
  asks: string[]
  placed: Placed[]
  missing: number
  why: Explanation | null
}

export function WhatIfPage(): JSX.Element {
  const { query } = useRoute()
  const [form, setForm] = useState(() => fromQuery(query))
  const change = (fields: Partial<Form>): void => setForm({ ...form, ...fields })
  const ready = form.asks === 'yaml' ? form.manifest.trim() !== '' : form.asks !== 'pool' || form.pool !== ''
  const past = useModel().status === 'history'
  const answer = usePosted<{ results: Result[] }>('/api/v1/what-if', ready ? toBody(form) : null, { delay: 250 })
  useEffect(() => {
    const timer = setTimeout(() => navigate(`/what-if?${toQuery(form)}`, { replace: true }), 300)
    return () => clearTimeout(timer)
  }, [form])
  return (
    <Page title={t('What if')} lead={t('Where copies of a pod would be placed, by the function that places pods. Nothing is written.')}>
      {past && <Note kind="warning">{t('What if is computed for now, also while you see the past.')}</Note>}
      <div class="whatif">
        <FormPanel form={form} onChange={change} />
        <div class="whatif-results" aria-live="polite" aria-busy={answer.asking}>
          <ErrorNote error={answer.error} />
          {!ready && <Empty>{form.asks === 'yaml' ? t('Paste a Pod, Job or Deployment.') : t('Choose a pool.')}</Empty>}
          {ready && !answer.data && answer.asking && <Empty>{t('Computing …')}</Empty>}
          {answer.data && <Results results={answer.data.results} />}
        </div>
      </div>
    </Page>
  )
}

interface FormProps { form: Form; onChange: (fields: Partial<Form>) => void }

function FormPanel({ form, onChange }: FormProps): JSX.Element {
  const model = useModel()
  const pools = useMemo(() => [...model.pools.keys()].sort(), [model.versions.pools])
  const asks: [Asks, string][] = [
    ['whole', t('Whole cards')], ['percent', t('Percent')], ['mig', t('MIG')], ['pool', t('Pool')], ['yaml', t('YAML')],
  ]
  const count = (name: 'cards' | 'percent' | 'units' | 'copies', label: string, most: number): JSX.Element => (
    <Field label={label}>
      {(id) => <input id={id} type="number" min={1} max={most} value={form[name]}
        onInput={(event) => onChange({ [name]: Math.max(1, Math.min(most, Math.floor(Number(event.currentTarget.value)) || 1)) })} />}
    </Field>
  )
  return (
    <form class="panel whatif-form" aria-label={t('What if')} onSubmit={(event) => event.preventDefault()}>
      <Choice label={t('Each copy asks for')} value={form.asks} options={asks} onChange={(choice) => onChange({ asks: choice })} />
      <div class="field-row">
        {['whole', 'percent'].includes(form.asks) && count('cards', t('Cards'), 64)}
        {form.asks === 'mig' && count('cards', t('Parts'), 64)}
        {form.asks === 'percent' && count('percent', t('Percent of each card'), 100)}
        {form.asks === 'mig' && (
          <Field label={t('MIG profile')}>
            {(id) => <input id={id} value={form.profile} onInput={(event) => onChange({ profile: event.currentTarget.value.trim() })} />}
          </Field>
        )}
        {form.asks === 'pool' && <PoolField label={t('Pool')} value={form.pool} pools={pools} onChange={(pool) => onChange({ pool })} />}
        {form.asks === 'pool' && count('units', t('Units'), 10_000)}
        {form.asks !== 'yaml' && (
          <Field label={t('Namespace')}>
            {(id) => <input id={id} value={form.namespace} onInput={(event) => onChange({ namespace: event.currentTarget.value.trim() })} />}
          </Field>
        )}
        {count('copies', t('Copies'), 100_000)}
      </div>
      {form.asks === 'yaml' && (
        <Field label={t('Pod, Job, Deployment … as YAML')}
          hint={form.manifest.length > LONGEST_IN_URL ? t('Too long for the address: a link to this page will not contain it.') : ''}>
          {(id) => <textarea id={id} rows={12} spellcheck={false} value={form.manifest}
            onInput={(event) => onChange({ manifest: event.currentTarget.value })} />}
        </Field>
      )}
      <fieldset class="checks">
        <legend>{t('Strategies, side by side')}</legend>
        {STRATEGIES.map((name) => (
          <label key={name} class="check-line" lang="en">
            <input type="checkbox" checked={form.strategies.includes(name)} onChange={(event) => onChange({
              strategies: event.currentTarget.checked ? [...form.strategies, name] : form.strategies.filter((other) => other !== name),
            })} />
            {name}
          </label>
        ))}
        {!form.strategies.length && <small class="muted">{t('None chosen: the strategy of the pool.')}</small>}
      </fieldset>
      <Supposed form={form} pools={pools} onChange={onChange} />
    </form>
  )
}

interface PoolFieldProps { label: string; value: string; pools: string[]; onChange: (pool: string) => void }

function PoolField({ label, value, pools, onChange }: PoolFieldProps): JSX.Element {
  return (
    <Field label={label}>
      {(id) => (
        <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
          <option value="">{t('choose a pool')}</option>
          {pools.map((pool) => <option key={pool} value={pool}>{pool}</option>)}
        </select>
      )}
    </Field>
  )
}

// As if cards had joined a pool.
function Supposed({ form, pools, onChange }: FormProps & { pools: string[] }): JSX.Element {
  const [text, setText] = useState(form.add.join('\n'))
  return (
    <details class="supposed" open={form.add.length > 0}>
      <summary>{t('With these cards added')}</summary>
      <Field label={t('Cards, one per line')} hint={t('As if these cards had joined the pool below.')}>
        {(id) => <textarea id={id} rows={3} spellcheck={false} value={text} onInput={(event) => {
          setText(event.currentTarget.value)
          onChange({ add: event.currentTarget.value.split(/[\s,]+/).filter(Boolean) })
        }} />}
      </Field>
      <PoolField label={t('Pool that they join')} value={form.addPool} pools={pools} onChange={(addPool) => onChange({ addPool })} />
    </details>
  )
}

function Results({ results }: { results: Result[] }): JSX.Element {
  const [chosen, setChosen] = useState('')
  const shown = results.find((result) => result.strategy === chosen) ?? results[0]
  const drawn = useMemo(() => overlay(shown?.placed ?? []), [shown])
  const used = useMemo(() => new Set(shown?.placed.map((place) => place.node)), [shown])
  if (!shown) return <Empty>{t('Nothing to show.')}</Empty>
  return (
    <>
      <div class="strategies">
        {results.map((result) => (
          <Summary key={result.strategy} result={result} shown={result === shown} single={results.length === 1}
            onShow={() => setChosen(result.strategy)} />
        ))}
      </div>
      <Section title={t('On the map')} aside={<small class="muted">{t('{n} node used|{n} nodes used', { n: used.size })}</small>}>
        <FleetMap overlay={drawn} compact />
      </Section>
      {shown.placed.length > 0 && <Places placed={shown.placed} />}
      {shown.why && (
        <>
          <Note kind="warning">
            <b>{t('{n} copy would wait.|{n} copies would wait.', { n: shown.missing })}</b> <span lang="en">{shown.why.sentence}</span>
          </Note>
          <Why found={shown.why} />
        </>
      )}
      <Section title={t('The same by command')}>
        <Command line={`croupier what-if -f pod.yaml --count ${shown.copies} --strategy ${shown.strategy}`} />
      </Section>
    </>
  )
}

interface SummaryProps { result: Result; shown: boolean; single: boolean; onShow: () => void }

function Summary({ result, shown, single, onShow }: SummaryProps): JSX.Element {
  const model = useModel()
  const [before, after] = useMemo(() => {
    const taken = overlay(result.placed)
    return [left(model.cards.values(), new Map()), left(model.cards.values(), taken)]
  }, [result, model.versions.cards])
  const fit = result.placed.length
  const rows: [string, keyof Left][] = [
    [t('whole cards free'), 'wholeCards'], [t('percent free'), 'percent'], [t('MIG parts free'), 'slots'], [t('slices free'), 'slices'],
  ]
  return (
    <article class={shown && !single ? 'panel strategy shown' : 'panel strategy'}>
      <h2 lang="en">{result.strategy}</h2>
      <p class="big">{t('{fit} of {all} fit', { fit, all: result.copies })}</p>
      <p class="muted" lang="en">{result.asks.join(', ')}</p>
      <dl class="changes">
        {rows.filter(([, key]) => before[key] > 0).map(([title, key]) => (
          <div key={key} class={before[key] === after[key] ? '' : 'changed'}>
            <dt>{title}</dt><dd>{before[key] === after[key] ? number(before[key]) : `${number(before[key])} → ${number(after[key])}`}</dd>
          </div>
        ))}
      </dl>
      {!single && <button type="button" aria-pressed={shown} onClick={onShow}>{t('Show on the map')}</button>}
    </article>
  )
}

const SHOWN_NODES = 30

function Places({ placed }: { placed: Placed[] }): JSX.Element {
  const rows = useMemo(() => perNode(placed), [placed])
  return (
    <Section title={t('Places')}>
      <ul class="places">
        {rows.slice(0, SHOWN_NODES).map((row) => (
          <li key={row.node}>
            <NodeName node={row.node} /> <span class="muted">{t('{n} copy|{n} copies', { n: row.copies })} · {partsText(row.cards)}</span>
          </li>
        ))}
      </ul>
      {rows.length > SHOWN_NODES && <p class="muted">{t('and {n} more', { n: rows.length - SHOWN_NODES })}</p>}
    </Section>
  )
}

function partsText(parts: Part[]): ComponentChildren {
  const sums = new Map<string, number>()
  for (const part of parts) {
    const key = t('card {index}', { index: part.index ?? '?' })
    sums.set(key, (sums.get(key) ?? 0) + (part.slots?.length ?? part.percent ?? part.slices ?? 0))
  }
  const unit = parts[0]?.slots ? t('MIG parts') : parts[0]?.slices !== undefined ? t('slices') : '%'
  return [...sums].map(([card, sum]) => `${card}: ${number(sum)} ${unit}`).join(', ')
}

// One pool: what it has, how it changes, its cards, who may use it, and which cards could join.

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { useGet } from '../answers.ts'
import {
  Badge, Bar, CardLink, Command, Empty, ErrorNote, HolderLink, NodeName, Note, Page, Section, Sentence, Since,
} from '../components.tsx'
import { openAction } from '../dialogs/action.tsx'
import { number } from '../format.ts'
import { t } from '../i18n.ts'
import { progress, verdict } from '../maintenance.ts'
import type { StepName } from '../maintenance.ts'
import { FleetMap } from '../map/map.tsx'
import { useModel } from '../model.ts'
import type { Allocation } from '../orders.ts'
import { Table } from '../table.tsx'
import type { Card, Condition, PoolRow } from '../wire.ts'
import { BADGES, unitText, verdictText } from './pools.tsx'

interface PoolObject {
  spec: {
    allocation: Allocation
    access?: { namespaces?: string[]; serviceAccounts?: string[]; dexGroups?: string[] }
    deviceAssignment?: { requireAnnotation?: boolean }
  }
  status: { candidates?: { inventoryID: string; node?: string; reason?: string }[] }
}

export function PoolPage({ pool: name }: { pool: string }): JSX.Element {
  const model = useModel()
  const row = model.pools.get(name)
  const live = model.status !== 'history'
  const answer = useGet<PoolObject>(live ? `/api/v1/pools/${encodeURIComponent(name)}` : null, JSON.stringify(row))
  const ofPool = useMemo(() => (card: Card) => card.pool === name, [name])
  if (!row) {
    return (
      <Page title={name}>
        {model.status === 'loading' ? <Empty>{t('Loading …')}</Empty>
          : <Empty>{t('There is no pool {pool}, or you may not see it.', { pool: name })}</Empty>}
      </Page>
    )
  }
  const state = verdict(row.conditions)
  return (
    <Page title={name} lead={<><Badge kind={BADGES[state.severity]}>{verdictText(state.word)}</Badge> <Sentence text={state.message} /></>}
      actions={<>
        {row.conditions.some((condition) => condition.status === 'True' && condition.reason === 'AwaitingConfirmation') && (
          <button type="button" class="primary" onClick={() => openAction({ action: 'confirm', pool: name })}>
            {t('Confirm generation {n}', { n: row.generation })}
          </button>
        )}
        <button type="button" onClick={() => openAction({ action: 'share', pool: name })}>{t('Change sharing')}</button>
      </>}>
      <Amounts row={row} />
      <Maintenance name={name} row={row} />
      <Section title={t('Cards of the pool')} aside={<small class="muted">{t('{n} card|{n} cards', { n: row.cards })}</small>}>
        {row.cards ? <FleetMap filter={ofPool} compact /> : <Empty>{t('No card is in this pool.')}</Empty>}
      </Section>
      <ErrorNote error={answer.error} />
      <div class="columns">
        <Sharing row={row} object={answer.data} />
        <Access access={answer.data?.spec.access} known={answer.data !== null} />
      </div>
      <Section title={t('Conditions')}><Conditions conditions={row.conditions} /></Section>
      <Candidates candidates={answer.data?.status.candidates} count={row.candidates} known={answer.data !== null} />
      <Section title={t('The same by command')}><Command line={`croupier pools show ${name}`} /></Section>
    </Page>
  )
}

function Amounts({ row }: { row: PoolRow }): JSX.Element {
  const amounts = [[t('available'), row.available], [t('used'), row.used], [t('booked'), row.booked], [t('total'), row.total]] as const
  return (
    <Section title={t('Amounts in {unit}', { unit: unitText(row.unit) })}>
      <div class="big-bar"><Bar total={row.total} used={row.used} booked={row.booked} /></div>
      <dl class="numbers">
        {amounts.map(([title, value]) => <div key={title}><dt>{title}</dt><dd>{number(value)}</dd></div>)}
      </dl>
      {row.total === null && <p class="muted">{t('The pool has not been counted yet, so its amounts are unknown.')}</p>}
    </Section>
  )
}

export function stepText(name: StepName): string {
  switch (name) {
    case 'Draining': return t('Draining')
    case 'Rebuilding': return t('Rebuilding')
    case 'RollingBack': return t('Rolling back')
    case 'RollingOut': return t('Rolling out card by card')
    case 'Serving': return t('Serving')
    case 'Drifted': return t('Drifted')
    case 'Repairing': return t('Repairing')
    case 'Confirming': return t('Waiting for confirmation')
    case 'Deleting': return t('Deleting')
    case 'Deleted': return t('Deleted')
  }
}

function Maintenance({ name, row }: { name: string; row: PoolRow }): JSX.Element {
  const model = useModel()
  const line = progress(row.conditions)
  const states = { done: t('done'), now: t('now'), next: t('to come'), failed: t('failed') }
  const drains = line.steps.some((step) => step.state === 'now' && ['Draining', 'Deleting', 'RollingOut'].includes(step.name))
  const held = useMemo(() => heldCards(model.cards.values(), name), [model.versions.cards, name])
  return (
    <Section title={t('Maintenance')} aside={line.stuck ? <Badge kind="bad">{t('past its deadline')}</Badge> : undefined}>
      <ol class="steps">
        {line.steps.map((step) => (
          <li key={step.name} class={step.state} aria-current={step.state === 'now' ? 'step' : undefined}>
            <span>{stepText(step.name)}</span> <small>{states[step.state]}</small>
          </li>
        ))}
      </ol>
      {!line.calm && (
        <>
          <p><Sentence text={line.message} /> {line.since && <small class="muted"><Since at={line.since} /></small>}</p>
          {line.counted && (
            <p>
              <progress max={line.counted.of} value={line.counted.done} aria-label={t('Changed cards')} />{' '}
              {t('{done} of {all} cards', { done: line.counted.done, all: line.counted.of })}
            </p>
          )}
        </>
      )}
      {drains && (
        <>
          <p>{t('{held} of {all} cards are still held; no pod is evicted.', { held: held.length, all: row.cards })}</p>
          <ul class="held">
            {held.slice(0, 50).map(({ card, holders }) => (
              <li key={card.id}>
                <CardLink card={card.id} />
                {holders.map((holder) => <span key={holder}> · <HolderLink number={holder} /></span>)}
              </li>
            ))}
          </ul>
        </>
      )}
    </Section>
  )
}

function heldCards(cards: Iterable<Card>, pool: string): { card: Card; holders: number[] }[] {
  return [...cards]
    .filter((card) => card.pool === pool)
    .map((card) => ({
      card, holders: [...new Set([...card.holders.map((one) => one.number), ...card.slots.map((slot) => slot.holder)])].filter(Boolean),
    }))
    .filter(({ holders }) => holders.length)
}

function Sharing({ row, object }: { row: PoolRow; object: PoolObject | null }): JSX.Element {
  const allocation = object?.spec.allocation
  return (
    <Section title={t('Sharing')}>
      <dl class="facts">
        <div><dt>{t('desired')}</dt><dd lang="en">{row.sharing}</dd></div>
        <div><dt>{t('carried out')}</dt><dd lang="en">{row.applied || <span class="muted">{t('unknown')}</span>}</dd></div>
        <div><dt>{t('rollout')}</dt><dd lang="en">{allocation ? allocation.rollout ?? 'WholePool' : '–'}</dd></div>
        {allocation?.maxDevicesPerNode && <div><dt>{t('most cards per node')}</dt><dd>{number(allocation.maxDevicesPerNode)}</dd></div>}
        <div><dt>{t('strategy')}</dt><dd lang="en">{row.strategy || <span class="muted">{t('the default setting')}</span>}</dd></div>
        <div><dt>{t('cards join')}</dt><dd>{!object ? '–' : object.spec.deviceAssignment?.requireAnnotation === false
          ? t('without approval') : t('after approval')}</dd></div>
      </dl>
      {row.applied && row.applied !== row.sharing && <Note kind="warning">{t('The cards do not have the desired sharing yet.')}</Note>}
    </Section>
  )
}

function Access({ access, known }: { access: PoolObject['spec']['access']; known: boolean }): JSX.Element {
  const lists = [
    [t('namespaces'), access?.namespaces], [t('service accounts'), access?.serviceAccounts], [t('groups'), access?.dexGroups],
  ] as const
  const open = lists.every(([, list]) => !list?.length)
  return (
    <Section title={t('Who may use it')}>
      {!known ? <p class="muted">{t('unknown')}</p> : open ? <p>{t('Every pod may use this pool.')}</p> : (
        <dl class="facts">
          {lists.filter(([, list]) => list?.length).map(([title, list]) => (
            <div key={title}><dt>{title}</dt><dd lang="en">{list!.join(', ')}</dd></div>
          ))}
        </dl>
      )}
    </Section>
  )
}

function Conditions({ conditions }: { conditions: Condition[] }): JSX.Element {
  const good = (condition: Condition): 'ok' | 'warn' | 'mute' => {
    if (condition.status === 'Unknown') return 'mute'
    const positive = condition.type === 'Available' || condition.type === 'Configured'
    return (condition.status === 'True') === positive ? 'ok' : 'warn'
  }
  return (
    <Table label={t('Conditions')} name="conditions" rows={conditions} keyOf={(condition) => condition.type} filter={false}
      empty={t('The pool has not been reconciled yet.')}
      columns={[
        { id: 'type', title: t('Condition'), cell: (one) => <span lang="en">{one.type}</span> },
        { id: 'status', title: t('Status'), cell: (one) => <Badge kind={good(one)}>{one.status}</Badge> },
        { id: 'reason', title: t('Reason'), cell: (one) => <span lang="en">{one.reason}</span> },
        { id: 'since', title: t('Since'), cell: (one) => <Since at={one.since} /> },
        { id: 'message', title: t('Why'), wide: true, cell: (one) => <Sentence text={one.message} /> },
      ]} />
  )
}

interface CandidatesProps { candidates: PoolObject['status']['candidates']; count: number; known: boolean }

function Candidates({ candidates = [], count, known }: CandidatesProps): JSX.Element {
  const model = useModel()
  const columns = useMemo(() => [
    {
      id: 'card', title: t('Card'), value: (one: { inventoryID: string }) => one.inventoryID,
      cell: (one: { inventoryID: string }) => model.cards.has(one.inventoryID) ? <CardLink card={one.inventoryID} /> : one.inventoryID,
    },
    { id: 'node', title: t('Node'), value: (one: { node?: string }) => one.node, cell: (one: { node?: string }) => <NodeName node={one.node ?? ''} /> },
    { id: 'why', title: t('Why it has not joined'), wide: true, value: (one: { reason?: string }) => one.reason, cell: (one: { reason?: string }) => <Sentence text={one.reason ?? ''} /> },
  ], [])
  return (
    <Section title={t('Cards that could join')} aside={<small class="muted">{number(count)}</small>}>
      {known
        ? <Table label={t('Cards that could join')} name="candidates" columns={columns} rows={candidates}
          keyOf={(one) => one.inventoryID} empty={t('Every card that matches the pool is in it.')} />
        : <p class="muted">{t('unknown')}</p>}
    </Section>
  )
}

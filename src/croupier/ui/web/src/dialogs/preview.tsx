// What an action would do: to each object, to the pools, and which waiting pods would start.

import type { JSX } from 'preact'
import { Badge, Bar, CardLink, Command, NodeName, Note, PodLink, PoolLink, Sentence } from '../components.tsx'
import { number, UNKNOWN } from '../format.ts'
import { t } from '../i18n.ts'

export interface PreviewObject {
  kind: string
  name: string
  resourceVersion: string
  outcome: 'now' | 'later' | 'declined' | 'unchanged'
  sentence: string
  holders: { pod: string; share: string }[]
  dryRun: { ok: boolean; message: string }
  command: string
  kubectl: string
}

export interface Amounts { total: number | null; used: number | null; booked: number | null; available: number | null }

export interface Preview {
  action: string
  objects: PreviewObject[]
  pools: { pool: string; unit: string; before: Amounts | null; after: Amounts | null }[]
  starts: { pod: string; node: string; cards: string }[]
  notes: string[]
}

const OUTCOMES = [['declined', 'bad'], ['now', 'ok'], ['later', 'warn'], ['unchanged', 'mute']] as const

function outcomeText(outcome: PreviewObject['outcome']): string {
  switch (outcome) {
    case 'now': return t('happens now')
    case 'later': return t('happens later')
    case 'declined': return t('declined')
    case 'unchanged': return t('changes nothing')
  }
}

export function PreviewPanel({ preview, asking }: { preview: Preview | null; asking: boolean }): JSX.Element | null {
  if (!preview) return asking ? <p class="empty">{t('Computing what would happen …')}</p> : null
  return (
    <div class={asking ? 'preview stale' : 'preview'}>
      {preview.notes.map((note) => <Note key={note}><Sentence text={note} /></Note>)}
      <h3>{t('What would happen')}</h3>
      {OUTCOMES.map(([outcome, badge]) => (
        <Group key={outcome} badge={badge} title={outcomeText(outcome)}
          objects={preview.objects.filter((object) => object.outcome === outcome)} />
      ))}
      <DryRun objects={preview.objects} />
      {preview.pools.length > 0 && <h3>{t('Pools before and after')}</h3>}
      {preview.pools.map((pool) => <PoolChange key={pool.pool} {...pool} />)}
      <h3>{t('Waiting pods that would then start')}</h3>
      <Starts starts={preview.starts} />
      <h3>{t('The same by command')}</h3>
      <Commands objects={preview.objects} />
    </div>
  )
}

const OPEN_UP_TO = 6

function Group(props: { badge: 'ok' | 'warn' | 'bad' | 'mute'; title: string; objects: PreviewObject[] }): JSX.Element | null {
  const { objects } = props
  if (!objects.length) return null
  return (
    <details class="outcome" open={objects.length <= OPEN_UP_TO || props.badge === 'bad'}>
      <summary><Badge kind={props.badge}>{props.title}</Badge> {t('{n} object|{n} objects', { n: objects.length })}</summary>
      <ul>
        {objects.map((object) => (
          <li key={object.name}>
            {object.kind === 'GPUDevice' ? <CardLink card={object.name} />
              : object.kind === 'GPUPool' ? <PoolLink pool={object.name} /> : <b>{object.name}</b>}{' '}
            <Sentence text={object.sentence} />
            {object.holders.length > 0 && (
              <ul class="inline-list" aria-label={t('Held by')}>
                {object.holders.map((holder) => (
                  <li key={holder.pod}><PodLink pod={holder.pod} /> <small>{holder.share}</small></li>
                ))}
              </ul>
            )}
          </li>
        ))}
      </ul>
    </details>
  )
}

function DryRun({ objects }: { objects: PreviewObject[] }): JSX.Element | null {
  const asked = objects.filter((object) => object.outcome === 'now' || object.outcome === 'later')
  const refused = asked.filter((object) => !object.dryRun.ok)
  if (!asked.length) return null
  if (!refused.length) {
    return <p class="dry-run"><Badge kind="ok">{t('dry run')}</Badge> {t('The API server would accept it from you.')}</p>
  }
  const messages = [...new Set(refused.map((object) => object.dryRun.message))]
  return (
    <Note kind="error">
      {t('The API server would refuse {n} change:|The API server would refuse {n} changes:', { n: refused.length })}
      <ul>{messages.map((message) => <li key={message}><Sentence text={message} /></li>)}</ul>
    </Note>
  )
}

const AMOUNTS = ['total', 'used', 'booked', 'available'] as const

function PoolChange({ pool, unit, before, after }: Preview['pools'][number]): JSX.Element {
  const titles = { total: t('total'), used: t('used'), booked: t('booked'), available: t('available') }
  return (
    <div class="pool-change">
      <p><PoolLink pool={pool} /> <small class="muted">{unit}</small></p>
      <div class="bars">
        <small>{t('before')}</small><Bar total={before?.total ?? null} used={before?.used ?? null} booked={before?.booked ?? null} />
        <small>{t('after')}</small><Bar total={after?.total ?? null} used={after?.used ?? null} booked={after?.booked ?? null} />
      </div>
      <dl class="changes">
        {AMOUNTS.map((name) => {
          const [old, now] = [before?.[name] ?? null, after?.[name] ?? null]
          return (
            <div key={name} class={old === now ? '' : 'changed'}>
              <dt>{titles[name]}</dt>
              <dd>{old === now ? number(old) : `${number(old)} → ${now === null ? UNKNOWN : number(now)}`}</dd>
            </div>
          )
        })}
      </dl>
    </div>
  )
}

function Starts({ starts }: { starts: Preview['starts'] }): JSX.Element {
  if (!starts.length) return <p class="muted">{t('None.')}</p>
  return (
    <ul class="starts">
      {starts.map((start) => (
        <li key={start.pod}><PodLink pod={start.pod} /> → <NodeName node={start.node} />, <Sentence text={start.cards} /></li>
      ))}
    </ul>
  )
}

function Commands({ objects }: { objects: PreviewObject[] }): JSX.Element {
  const lines = (pick: (object: PreviewObject) => string): string[] => objects.map(pick).filter(Boolean)
  const [own, plain] = [lines((object) => object.command), lines((object) => object.kubectl)]
  if (objects.length === 1) return <>{[...new Set([...own, ...plain])].map((line) => <Command key={line} line={line} />)}</>
  return (
    <>
      {[own, plain].filter((list) => list.length).map((list) => (
        <details key={list[0]}>
          <summary>{t('{n} line of {command}|{n} lines of {command}', { n: list.length, command: list[0]!.split(' ')[0]! })}</summary>
          <Command line={list.join('\n')} />
        </details>
      ))}
    </>
  )
}

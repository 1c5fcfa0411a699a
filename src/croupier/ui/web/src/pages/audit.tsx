// What does not agree, and what to do: findings of the ledger, checks of the installation, silent agents.

import type { JSX } from 'preact'
import { useMemo, useState } from 'preact/hooks'
import { useGet } from '../answers.ts'
import { Badge, CardLink, Command, Empty, ErrorNote, NodeName, Note, Page, PodLink, Section, Sentence } from '../components.tsx'
import { number } from '../format.ts'
import { t } from '../i18n.ts'
import { useModel } from '../model.ts'
import type { Finding } from '../wire.ts'

interface Check { check: string; severity: string; where: string; what: string; whatToDo: string }
interface Doctor { healthy: boolean; checks: string[]; findings: Check[] }
interface AuditAnswer { checks: Doctor | null; why?: string }

const CLASSES = ['Leak', 'Ghost', 'Overlap', 'WrongCard', 'Drift', 'Stranger'] as const

function classTexts(name: string): { title: string; compares: string; repair: string } {
  switch (name) {
    case 'Leak': return {
      title: t('Leak'), compares: t('The ledger has a holder, but no live pod on the node and no Reservation.'),
      repair: t('Release the grant.'),
    }
    case 'Ghost': return {
      title: t('Ghost'), compares: t('A live pod on the node uses cards, but the ledger has no entry for it.'),
      repair: t('Record the pod.'),
    }
    case 'Overlap': return {
      title: t('Overlap'), compares: t('More is allocated or used than exists, or one pod holds cards under two names.'),
      repair: t('There is no safe repair: end one of the pods.'),
    }
    case 'WrongCard': return {
      title: t('Wrong card'), compares: t('The ledger and the binding of the pod name different cards.'),
      repair: t('Follow the allocation of the pod.'),
    }
    case 'Drift': return {
      title: t('Drift'), compares: t('The cards of the ledger differ from the cards that the node reports.'),
      repair: t('Take over the reported cards.'),
    }
    case 'Stranger': return {
      title: t('Stranger'), compares: t('A process runs on a card that its pod does not hold, or that belongs to no pod.'),
      repair: t('There is no safe repair: find the process, and end it or request the card.'),
    }
    default: return { title: name, compares: '', repair: '' }
  }
}

type Found = Finding & { node: string }

export function AuditPage(): JSX.Element {
  const model = useModel()
  const found = useMemo(
    () => [...model.findings].flatMap(([node, list]) => list.map((one): Found => ({ ...one, node }))), [model.versions.findings],
  )
  const names = [...new Set([...CLASSES, ...found.map((one) => one.class)])]
  return (
    <Page title={t('Audit')} lead={t('Differences between the ledger, the pods and the nodes, and checks of the installation.')}>
      <Unreadable />
      {names.map((name) => <ClassPanel key={name} name={name} found={found.filter((one) => one.class === name)} />)}
      {!found.length && (
        <Section title={t('Ledger')}>
          <Empty>{model.named ? t('No findings: the ledger agrees with the pods and the nodes.') : t('Loading …')}</Empty>
          <Command line="croupier audit" />
        </Section>
      )}
      <Checks />
      <Silent />
      <Versions />
    </Page>
  )
}

const SHOWN = 50

function ClassPanel({ name, found }: { name: string; found: Found[] }): JSX.Element | null {
  const texts = classTexts(name)
  if (!found.length) return null
  const nodes = [...new Set(found.map((one) => one.node))]
  return (
    <Section title={texts.title} aside={<Badge kind="bad">{t('{n} finding|{n} findings', { n: found.length })}</Badge>}>
      <p>{texts.compares}</p>
      <p class="muted">{t('Safe repair')}: {texts.repair}</p>
      <ul class="findings">
        {found.slice(0, SHOWN).map((one) => (
          <li key={`${one.node} ${one.card} ${one.holder} ${one.message}`}>
            <NodeName node={one.node} />
            {one.card && <> · <CardLink card={one.card} /></>}
            {one.holder && <> · <PodLink pod={one.holder} /></>}
            <p><Sentence text={one.message} /></p>
          </li>
        ))}
      </ul>
      {found.length > SHOWN && <p class="muted">{t('and {n} more', { n: found.length - SHOWN })}</p>}
      {nodes.slice(0, 10).map((node) => <Command key={node} line={`croupier audit ${node} --fix`} />)}
    </Section>
  )
}

const SEVERITIES: Record<string, 'bad' | 'warn' | 'info'> = { Error: 'bad', error: 'bad', Warning: 'warn', warning: 'warn' }

function Checks(): JSX.Element {
  const [round, setRound] = useState(0)
  const answer = useGet<AuditAnswer>('/api/v1/audit', round)
  const doctor = answer.data?.checks
  const passed = doctor?.checks.filter((name) => !doctor.findings.some((one) => one.check === name)) ?? []
  return (
    <Section title={t('Checks of the installation')}
      aside={<button type="button" class="small" aria-disabled={answer.asking} onClick={() => setRound(round + 1)}>{t('Check again')}</button>}>
      <ErrorNote error={answer.error} />
      {!answer.data && answer.asking && <Empty>{t('Checking …')}</Empty>}
      {answer.data && !doctor && <Note><Sentence text={answer.data.why ?? ''} /></Note>}
      {doctor && (
        <ul class="findings">
          {doctor.findings.map((one) => (
            <li key={`${one.check} ${one.where} ${one.what}`}>
              <Badge kind={SEVERITIES[one.severity] ?? 'info'}>{one.severity}</Badge> <b lang="en">{one.check}</b>{' '}
              <span class="muted" lang="en">{one.where}</span>
              <p><Sentence text={one.what} /></p>
              {one.whatToDo && <p><b>{t('What to do')}:</b> <Sentence text={one.whatToDo} /></p>}
            </li>
          ))}
        </ul>
      )}
      {passed.length > 0 && <p><Badge kind="ok">{t('no findings')}</Badge> <span lang="en">{passed.join(', ')}</span></p>}
      <Command line="croupier doctor" />
    </Section>
  )
}

function Silent(): JSX.Element {
  const model = useModel()
  const nodes = useMemo(() => [...model.nodes].filter(([, node]) => node.silent), [model.versions.nodes])
  return (
    <Section title={t('Silent agents')} aside={<small class="muted">{number(nodes.length)}</small>}>
      {!nodes.length && <Empty>{t('Every agent reports.')}</Empty>}
      <ul class="findings">
        {nodes.slice(0, SHOWN).map(([name, node]) => (
          <li key={name}><NodeName node={name} /> <Badge kind="bad">{t('silent')}</Badge> <Sentence text={node.message} /></li>
        ))}
      </ul>
    </Section>
  )
}

function Unreadable(): JSX.Element | null {
  const kinds = Object.entries(useModel().cluster?.unreadable ?? {})
  if (!kinds.length) return null
  return (
    <Note kind="warning">
      {t('This page cannot read everything, so a part of it is unknown:')}
      <ul>{kinds.map(([kind, why]) => <li key={kind}><b lang="en">{kind}</b>: <Sentence text={why} /></li>)}</ul>
    </Note>
  )
}

function Versions(): JSX.Element {
  const model = useModel()
  const { cluster } = model
  const counted = [...model.nodes.values()].filter((node) => !node.recorded).length
  return (
    <Section title={t('Versions')}>
      <dl class="facts">
        <div><dt>{t('API server')}</dt><dd lang="en">{cluster?.server || '–'}</dd></div>
        <div><dt>Croupier</dt><dd lang="en">{cluster?.version || '–'}</dd></div>
        <div><dt>{t('ledger')}</dt><dd>{cluster ? ledgerText(cluster.capacityManager) : '–'}</dd></div>
        {counted > 0 && <div><dt>{t('counted from pods')}</dt><dd>{t('{n} node|{n} nodes', { n: counted })}</dd></div>}
      </dl>
    </Section>
  )
}

function ledgerText(manager: string): string {
  return manager === 'CRD' ? t('recorded in NodeReservations') : t('in the memory of the extender; shown as counted from pods')
}

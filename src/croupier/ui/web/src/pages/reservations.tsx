// Reservations and what they hold, with the time that is left.

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { Age, Badge, CardLink, NodeName, Page, PodLink, Sentence, Until } from '../components.tsx'
import { openAction } from '../dialogs/action.tsx'
import { t } from '../i18n.ts'
import { useModel } from '../model.ts'
import { Table } from '../table.tsx'
import type { Column } from '../table.tsx'
import type { ReservationRow } from '../wire.ts'

type Row = ReservationRow & { key: string; namespace: string; name: string; reserved: boolean }

const KINDS: Record<string, 'ok' | 'info' | 'warn' | 'bad'> = { Bound: 'ok', Held: 'info', Pending: 'warn', Failed: 'bad' }

function stateText(state: string): string {
  switch (state) {
    case 'Bound': return t('bound')
    case 'Held': return t('held')
    case 'Pending': return t('pending')
    case 'Failed': return t('failed')
    case 'Released': return t('released')
    default: return state
  }
}

const columns = (): Column<Row>[] => [
  { id: 'name', title: t('Reservation'), value: (row) => row.key, cell: (row) => row.reserved ? <span class="name">{row.key}</span> : <span class="muted">{t('without a Reservation')}</span> },
  { id: 'state', title: t('State'), value: (row) => row.state, cell: (row) => <Badge kind={KINDS[row.state] ?? 'mute'}>{stateText(row.state)}</Badge> },
  { id: 'pod', title: t('Pod'), value: (row) => row.pod, cell: (row) => <PodLink pod={row.pod.includes('/') ? row.pod : `${row.namespace}/${row.pod}`} /> },
  { id: 'until', title: t('Ends'), value: (row) => row.until || null, cell: (row) => <Until at={row.until} /> },
  { id: 'share', title: t('Share'), value: (row) => row.share, cell: (row) => <span lang="en">{row.share}</span> },
  { id: 'node', title: t('Node'), value: (row) => row.node, cell: (row) => <NodeName node={row.node} /> },
  { id: 'cards', title: t('Cards'), value: (row) => row.cards.join(' '), cell: (row) => row.cards.map((card) => <span key={card} class="listed"><CardLink card={card} /></span>) },
  { id: 'owner', title: t('Owner'), value: (row) => row.owner, cell: (row) => <span lang="en">{row.owner}</span> },
  { id: 'created', title: t('Age'), value: (row) => row.created, cell: (row) => <Age at={row.created} /> },
  { id: 'message', title: t('Message'), wide: true, value: (row) => row.message, cell: (row) => <Sentence text={row.message} /> },
  {
    id: 'release', title: t('Release'),
    cell: (row) => row.reserved && row.state !== 'Released' && (
      <button type="button" class="small" aria-label={t('Release {name}', { name: row.key })}
        onClick={() => openAction({ action: 'release', namespace: row.namespace, name: row.name })}>{t('Release')}</button>
    ),
  },
]

export function ReservationsPage(): JSX.Element {
  const model = useModel()
  const shown = useMemo(columns, [])
  const rows = useMemo(() => [...model.reservations].map(([key, row]): Row => {
    const [namespace = '', name = ''] = key.split('/')
    return { ...row, key, namespace, name, reserved: name !== '' }
  }), [model.versions.reservations])
  return (
    <Page title={t('Reservations')} lead={t('Held: kept for a pod until a time. Bound: the pod runs with it.')}>
      <Table label={t('Reservations')} columns={shown} rows={rows} keyOf={(row) => row.key} sort="until"
        empty={model.named ? t('There is no Reservation.') : t('Loading …')} />
    </Page>
  )
}

// Pods that wait for cards, each with the sentence why.

import type { JSX } from 'preact'
import { useMemo } from 'preact/hooks'
import { Age, Page, PodLink, PoolLink, Sentence } from '../components.tsx'
import { t } from '../i18n.ts'
import { useModel } from '../model.ts'
import { navigate } from '../router.ts'
import { Table } from '../table.tsx'
import type { Column } from '../table.tsx'
import type { WaitingRow } from '../wire.ts'

type Row = WaitingRow & { pod: string }

const columns = (): Column<Row>[] => [
  { id: 'pod', title: t('Pod'), value: (row) => row.pod, cell: (row) => <PodLink pod={row.pod} /> },
  { id: 'asks', title: t('Asks for'), value: (row) => row.asks.join(', '), cell: (row) => <span lang="en">{row.asks.join(', ')}</span> },
  { id: 'since', title: t('Waits'), value: (row) => row.since || null, cell: (row) => <Age at={row.since} /> },
  { id: 'pool', title: t('Pool'), value: (row) => row.pool, cell: (row) => <PoolLink pool={row.pool} /> },
  { id: 'priority', title: t('Priority'), align: 'right', value: (row) => row.priority, cell: (row) => row.priority },
  { id: 'sentence', title: t('Why'), wide: true, value: (row) => row.sentence, cell: (row) => <Sentence text={row.sentence} /> },
]

export function WaitingPage(): JSX.Element {
  const model = useModel()
  const shown = useMemo(columns, [])
  const rows = useMemo(() => [...model.waiting].map(([pod, row]) => ({ ...row, pod })), [model.versions.waiting])
  return (
    <Page title={t('Waiting pods')} lead={t('Why each pod waits, from the function that places pods. Open a pod to see what would help.')}>
      <Table label={t('Waiting pods')} columns={shown} rows={rows} keyOf={(row) => row.pod} sort="since"
        onOpen={(row) => navigate(`/pods/${row.pod.split('/').map(encodeURIComponent).join('/')}`)}
        empty={model.named ? t('No pod waits for a card.') : t('Loading …')} />
    </Page>
  )
}

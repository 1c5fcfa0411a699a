// How to sign in, as the server says: with a token of Kubernetes, by a link, or through a proxy. The token goes into the
// body of one POST and into no address.

import type { JSX } from 'preact'
import { useEffect, useState } from 'preact/hooks'
import { get, post } from '../api.ts'
import type { ApiError } from '../api.ts'
import { Command, ErrorNote, Field, Page, Sentence } from '../components.tsx'
import { t } from '../i18n.ts'
import { useRoute } from '../router.ts'

// Only a path of this page: never another site.
export function backTo(asked: string | null): string {
  return asked && /^\/(?![/\\])/.test(asked) && !asked.startsWith('/login') ? asked : '/'
}

export function LoginPage(): JSX.Element {
  const { query } = useRoute()
  const [token, setToken] = useState('')
  const [error, setError] = useState('')
  const [busy, setBusy] = useState(false)
  const [why, setWhy] = useState<ApiError | null>(null)
  useEffect(() => void get('/api/v1/me').then(() => location.assign(backTo(query.get('back'))), setWhy), [])
  const submit = async (event: Event): Promise<void> => {
    event.preventDefault()
    if (!token.trim() || busy) return
    setBusy(true)
    setError('')
    try {
      await post('/login', { token: token.trim() })
      location.assign(backTo(query.get('back')))
    } catch (failure) {
      setError((failure as Error).message)
      setBusy(false)
    }
  }
  if (why?.mode !== 'token') return <main id="main" class="login"><Page title={t('Sign in')} lead={why && <Sentence text={why.message} />} /></main>
  return (
    <main id="main" class="login">
      <Page title={t('Sign in')} lead={t('Paste a token of Kubernetes. You see and may do here what the token allows.')}>
        <form class="panel" onSubmit={(event) => void submit(event)}>
          <Field label={t('Token')} hint={t('It is kept encrypted in a cookie of this browser, for at most 8 hours.')}>
            {(id) => <input id={id} type="password" autocomplete="off" spellcheck={false} value={token} required
              onInput={(event) => setToken(event.currentTarget.value)} />}
          </Field>
          <ErrorNote error={error} />
          <button type="submit" class="primary" aria-disabled={busy || !token.trim()}>{busy ? t('Signing in …') : t('Sign in')}</button>
        </form>
        <section class="panel">
          <h2>{t('Where to get a token')}</h2>
          <p>{t('From a service account, for example:')}</p>
          <Command line="kubectl create token NAME -n NAMESPACE --duration 8h" />
        </section>
      </Page>
    </main>
  )
}

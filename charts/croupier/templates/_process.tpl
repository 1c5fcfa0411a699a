{{/* What all processes have alike. */}}

{{- define "croupier.labels" -}}
app: {{ .name }}
app.kubernetes.io/name: {{ .name }}
app.kubernetes.io/part-of: croupier
{{- end }}

{{/* The settings that shape what is installed: of a ModuleConfig that is there, where settings come from it. */}}
{{- define "croupier.chosen" -}}
{{- $chosen := .Values.settings -}}
{{- if and (eq .Values.settingsFrom "module") (.Capabilities.APIVersions.Has "deckhouse.io/v1alpha1/ModuleConfig") -}}
{{- $module := lookup "deckhouse.io/v1alpha1" "ModuleConfig" "" "gpu-operator" | default dict -}}
{{- $chosen = mergeOverwrite (deepCopy $chosen) (dig "spec" "settings" dict $module) -}}
{{- end -}}
{{- toYaml $chosen -}}
{{- end }}

{{/* Two of every process: as it is set, else from three nodes on. Rendered without a cluster: one. */}}
{{- define "croupier.available" -}}
{{- $set := get (include "croupier.chosen" . | fromYaml) "highAvailability" -}}
{{- if kindIs "bool" $set -}}
{{- ternary "yes" "" $set -}}
{{- else if ge (len (dig "items" list (lookup "v1" "Node" "" ""))) 3 -}}
yes
{{- end -}}
{{- end }}

{{- define "croupier.replicas" -}}
{{ ternary 2 1 (eq (include "croupier.available" .) "yes") }}
{{- end }}

{{/* Where the ledger is. */}}
{{- define "croupier.book" -}}
{{- $set := include "croupier.chosen" . | fromYaml -}}
{{- if eq (get $set "highAvailability" | toString) "true" -}}CRD
{{- else -}}{{ get $set "capacityManager" | default "InMemory" }}
{{- end -}}
{{- end }}

{{- define "croupier.certManager" -}}
{{- if or .Values.webhook.certManager.enabled (eq (dig "https" "mode" "" (include "croupier.chosen" . | fromYaml)) "CertManager") -}}yes{{- end -}}
{{- end }}

{{/* Where settings are followed while a process runs. */}}
{{- define "croupier.settings" -}}
- --settings={{ .Values.settingsFrom }}
{{- end }}

{{/* Those settings that count at the next start only: another value of one starts the pods anew. */}}
{{- define "croupier.restarting" -}}
{{- $set := include "croupier.chosen" . | fromYaml -}}
{{- dict "book" (include "croupier.book" .) "strategy" (dig "scheduling" "defaultStrategy" "" $set) "ttl" (dig "reservation" "ttl" "" $set) "resync" (dig "inventory" "resyncPeriod" "" $set) | toJson | sha256sum | trunc 16 -}}
{{- end }}

{{- define "croupier.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* How the API server is found; nothing where pods find it as ever. */}}
{{- define "croupier.apiServer" -}}
{{- with .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ $.Values.apiServer.port | quote }}}
{{- end }}
{{- end }}

{{- define "croupier.resources" -}}
{{ toYaml (get .root.Values.resources .component | default .root.Values.resources.default) }}
{{- end }}

{{/* A process is given five minutes to start: many start together, and a machine may be slow. */}}
{{- define "croupier.probes" -}}
startupProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 2
  timeoutSeconds: 5
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /livez, port: health}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 5
  timeoutSeconds: 5
{{- end }}

{{/* As Pod Security "restricted" wants it. */}}
{{- define "croupier.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "croupier.nobody" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The part of a pod that does not depend on what runs in it. */}}
{{- define "croupier.pod" -}}
serviceAccountName: {{ .name }}
enableServiceLinks: false
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.hostAliases }}
hostAliases: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The same for what may run anywhere: where, and away from its like. */}}
{{- define "croupier.anywhere" -}}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
topologySpreadConstraints:
{{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ $key }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels: {app: {{ $.name }}}
{{- end }}
{{- end }}

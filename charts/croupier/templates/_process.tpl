{{/* Shared by all processes. */}}

{{/* Metadata of a pod. Our labels win over podLabels, because selectors match them. */}}
{{- define "croupier.podMetadata" -}}
labels: {{ merge (include "croupier.processLabels" . | fromYaml) .root.Values.podLabels | toYaml | nindent 2 }}
{{- with merge (deepCopy (.annotations | default dict)) .root.Values.podAnnotations }}
annotations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The Deployments: component by name. */}}
{{- define "croupier.deployments" -}}
gpu-inventory-controller: inventory
gpu-bootstrap-controller: bootstrap
gpupool-controller: pools
croupier-cpu-limits: limits
gpu-admission-webhook: webhook
croupier-extender: extender
{{- if eq (include "croupier.capacityManager" .) "CRD" }}
croupier-ledger: ledger
{{- end }}
{{- if .Values.ui.enabled }}
croupier-ui: ui
{{- end }}
{{- end }}

{{/* The settings used for rendering; from the ModuleConfig in the cluster if settingsFrom is module. */}}
{{- define "croupier.effectiveSettings" -}}
{{- $chosen := .Values.settings -}}
{{- if and (eq .Values.settingsFrom "module") (.Capabilities.APIVersions.Has "deckhouse.io/v1alpha1/ModuleConfig") -}}
{{- $module := lookup "deckhouse.io/v1alpha1" "ModuleConfig" "" "gpu-operator" | default dict -}}
{{- $chosen = mergeOverwrite (deepCopy $chosen) (dig "spec" "settings" dict $module) -}}
{{- end -}}
{{- toYaml $chosen -}}
{{- end }}

{{/*
High availability: as set, otherwise on unless the cluster has exactly one node. Rendered without a cluster it is on: two
replicas work on one node, too.
*/}}
{{- define "croupier.highAvailability" -}}
{{- $set := get (include "croupier.effectiveSettings" . | fromYaml) "highAvailability" -}}
{{- if kindIs "bool" $set -}}
{{- ternary "yes" "" $set -}}
{{- else if ne (len (dig "items" list (lookup "v1" "Node" "" ""))) 1 -}}
yes
{{- end -}}
{{- end }}

{{/* Replicas of a Deployment: as set in `replicas`, otherwise two with high availability. */}}
{{- define "croupier.replicas" -}}
{{- $alone := and (eq .component "extender") (eq (include "croupier.capacityManager" .root) "InMemory") -}}
{{- $set := eq .component "ui" | ternary .root.Values.ui.replicas (get .root.Values.replicas .component) -}}
{{- if and $alone (gt (int $set) 1) -}}
{{- fail "replicas.extender must be 1 with settings.capacityManager InMemory: only one process may hold the ledger in memory; set capacityManager to CRD, or remove replicas.extender" -}}
{{- end -}}
{{- $usual := ternary 2 1 (and (eq (include "croupier.highAvailability" .root) "yes") (not $alone)) -}}
{{- $set | default $usual -}}
{{- end }}

{{/* The capacity manager. The chart's default is CRD; that of a process without settings is InMemory. */}}
{{- define "croupier.capacityManager" -}}
{{- $set := include "croupier.effectiveSettings" . | fromYaml -}}
{{- if eq (get $set "highAvailability" | toString) "true" -}}CRD
{{- else -}}{{ get $set "capacityManager" | default "CRD" }}
{{- end -}}
{{- end }}

{{/*
The capacity manager of the running extender; empty on a new installation. Version 0.1 wrote it as croupier.book. An
extender without the annotation counts as InMemory, because that one must stop before another one starts.
*/}}
{{- define "croupier.previousManager" -}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace "croupier-extender" -}}
{{- $annotations := dig "spec" "template" "metadata" "annotations" dict . -}}
{{- get $annotations "croupier.capacityManager" | default (get $annotations "croupier.book") | default "InMemory" -}}
{{- end -}}
{{- end }}

{{- define "croupier.certManager" -}}
{{- if or .Values.webhook.certManager.enabled (eq (dig "https" "mode" "" (include "croupier.effectiveSettings" . | fromYaml)) "CertManager") -}}yes{{- end -}}
{{- end }}

{{/* The source of the settings. */}}
{{- define "croupier.settings" -}}
- --settings={{ .Values.settingsFrom }}
{{- end }}

{{/* Settings that take effect at start-up only; a change restarts the pods. */}}
{{- define "croupier.restartSettings" -}}
{{- $set := include "croupier.effectiveSettings" . | fromYaml -}}
{{- dict "book" (include "croupier.capacityManager" .) "strategy" (dig "scheduling" "defaultStrategy" "" $set) "ttl" (dig "reservation" "ttl" "" $set) "share" (dig "sharing" "minPercent" "" $set) "resync" (dig "inventory" "resyncPeriod" "" $set) | toJson | sha256sum | trunc 16 -}}
{{- end }}

{{- define "croupier.image" -}}
image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{/* Variables of every process: its namespace, and the address of the API server. */}}
{{- define "croupier.env" -}}
- name: POD_NAMESPACE
  valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
{{- include "croupier.apiServer" . }}
{{- end }}

{{/* The address of the API server, if configured. */}}
{{- define "croupier.apiServer" -}}
{{- with .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ $.Values.apiServer.port | quote }}}
{{- end }}
{{- end }}

{{- define "croupier.resources" -}}
{{ toYaml (get .root.Values.resources .component | default .root.Values.resources.default) }}
{{- end }}

{{/* Probes. Start-up may take five minutes on a slow machine. */}}
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

{{/* Security contexts; the defaults satisfy Pod Security "restricted". */}}
{{- define "croupier.containerSecurityContext" -}}
{{ toYaml .Values.securityContext }}
{{- end }}

{{- define "croupier.podSecurityContext" -}}
{{ toYaml .Values.podSecurityContext }}
{{- end }}

{{/* Pod fields that are the same for all processes. */}}
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

{{/* Pod fields of processes that may run on any node: placement and spreading. */}}
{{- define "croupier.placement" -}}
{{- with .root.Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .root.Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
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

{{/* Pod fields of processes that run on every node with cards. */}}
{{- define "croupier.nodePlacement" -}}
{{- with .Values.node.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.node.runtimeClassName }}
runtimeClassName: {{ . }}
{{- end }}
{{- with .Values.node.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.node.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- if .Values.node.affinity }}
affinity: {{ toYaml .Values.node.affinity | nindent 2 }}
{{- else if not (hasPrefix "simulated" .Values.node.cards) }}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      # Nodes labelled by NFD, GPU Feature Discovery, or an earlier agent.
      nodeSelectorTerms:
      - matchExpressions: [{key: feature.node.kubernetes.io/pci-10de.present, operator: Exists}]
      - matchExpressions: [{key: feature.node.kubernetes.io/pci-0300_10de.present, operator: Exists}]
      - matchExpressions: [{key: feature.node.kubernetes.io/pci-0302_10de.present, operator: Exists}]
      - matchExpressions: [{key: gpu.deckhouse.io/device.00.vendor, operator: In, values: ["10de"]}]
      - matchExpressions: [{key: nvidia.com/gpu.present, operator: Exists}]
{{- end }}
{{- end }}

{{/* Labels of all objects, and the objects of generated files. */}}

{{/* The recommended labels. `component` is the process or the part that the object belongs to. */}}
{{- define "croupier.labels" -}}
app.kubernetes.io/name: croupier
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: croupier
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels of a process. Selectors match `app` alone, so they stay the same in every version. */}}
{{- define "croupier.processLabels" -}}
app: {{ .name }}
{{ include "croupier.labels" . }}
{{- end }}

{{/* A generated file. It is written for Deckhouse's namespace, and rendered for that of the release. */}}
{{- define "croupier.file" -}}
{{- .root.Files.Get .path | replace "d8-gpu-operator" .root.Release.Namespace -}}
{{- end }}

{{/* The objects of `text`, a generated file, in the namespace of the release; with the labels and `annotations`. */}}
{{- define "croupier.objects" -}}
{{- $labels := include "croupier.labels" . | fromYaml }}
{{- $added := .annotations | default dict }}
{{- range regexSplit "(?m)^---$" (.text | replace "d8-gpu-operator" .root.Release.Namespace) -1 }}
{{- $object := fromYaml . }}
{{- if not $object.kind }}
{{- fail (printf "a generated file of the chart contains no object: %s" ($object.Error | default .)) }}
{{- end }}
{{- $_ := set $object.metadata "labels" (merge (deepCopy $labels) ($object.metadata.labels | default dict)) }}
{{- with merge (deepCopy $added) ($object.metadata.annotations | default dict) }}
{{- $_ := set $object.metadata "annotations" . }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}

{{/* The rights of `helm test`: they are created before its pod, and deleted after it. */}}
{{- define "croupier.testRights" -}}
helm.sh/hook: test
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* The pod of `helm test`. It stays until the next test: Helm could not print the log of a deleted pod. */}}
{{- define "croupier.testPod" -}}
helm.sh/hook: test
helm.sh/hook-weight: "0"
helm.sh/hook-delete-policy: before-hook-creation
{{- end }}

{{/*
The prefix of all names. A StatefulSet's name may have 52 characters, of which "-orchestrator" takes 13. A Service's name
begins with a letter and has no dot. A name that had to be changed ends with a hash, so that no two releases share one.
*/}}
{{- define "headrace.fullname" -}}
{{- $given := .Values.fullnameOverride | default (contains "headrace" .Release.Name | ternary .Release.Name (printf "%s-headrace" .Release.Name)) -}}
{{- $name := regexMatch "^[a-z]" $given | ternary $given (printf "release-%s" $given) | replace "." "-" -}}
{{- if or (ne $name $given) (gt (len $name) 39) -}}
{{- $name = printf "%s-%s" (trunc 30 $name | trimSuffix "-") (sha256sum $given | trunc 8) -}}
{{- end -}}
{{- $name -}}
{{- end -}}

{{/* By which the services' certificates tell this release from others that share its authority. */}}
{{- define "headrace.trustDomain" -}}
{{ include "headrace.fullname" . }}.{{ .Release.Namespace }}
{{- end -}}

{{- define "headrace.image" -}}
{{- with .Values.image -}}
{{ empty .digest | ternary (printf "%s:%s" .repository (.tag | default $.Chart.AppVersion)) (printf "%s@%s" .repository .digest) | quote }}
{{- end -}}
{{- end -}}

{{/* list ROOT COMPONENT: the labels by which pods are selected; they never change. */}}
{{- define "headrace.selector" -}}
app.kubernetes.io/name: headrace
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{/* list ROOT COMPONENT LABELS: these labels over those of all objects; none replaces what selects pods. */}}
{{- define "headrace.labels" -}}
{{- $root := index . 0 -}}
{{- $own := dict "app.kubernetes.io/version" $root.Chart.AppVersion "app.kubernetes.io/part-of" "headrace" "app.kubernetes.io/managed-by" $root.Release.Service -}}
{{- merge (include "headrace.selector" . | fromYaml) (index . 2 | default dict) ($root.Values.labels | default dict) $own | toYaml -}}
{{- end -}}

{{/* list ROOT COMPONENT SUFFIX [ANNOTATIONS [LABELS]]: an object's metadata. */}}
{{- define "headrace.metadata" -}}
{{- $root := index . 0 }}{{ $given := slice (concat . (list dict dict)) 3 -}}
name: {{ printf "%s%s" (include "headrace.fullname" $root) (index . 2) | quote }}
namespace: {{ $root.Release.Namespace | quote }}
labels: {{- include "headrace.labels" (list $root (index . 1) (index $given 1)) | nindent 2 }}
{{- with merge dict (index $given 0 | default dict) ($root.Values.annotations | default dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* list ROOT COMPONENT VALUES [ANNOTATIONS]: the metadata of a pod template. */}}
{{- define "headrace.podMetadata" -}}
{{- $values := index . 2 -}}
labels: {{- include "headrace.labels" (list (index . 0) (index . 1) $values.labels) | nindent 2 }}
{{- with merge dict ($values.annotations | default dict) (gt (len .) 3 | ternary (last .) dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* list ROOT NAME DEFAULT: a Secret that exists before the release. */}}
{{- define "headrace.secret" -}}
{{ get (index . 0).Values.existingSecrets (index . 1) | default (printf "%s-%s" (include "headrace.fullname" (index . 0)) (index . 2)) }}
{{- end -}}

{{- define "headrace.containerSecurity" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{/* list ROOT VALUES: the part of a pod's spec that is the same everywhere. */}}
{{- define "headrace.podDefaults" -}}
{{- $values := index . 1 -}}
automountServiceAccountToken: false
enableServiceLinks: false   # their variables look like settings: a Service headrace-facade makes HEADRACE_FACADE_PORT
securityContext: {{- toYaml $values.securityContext | nindent 2 }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" }}
{{- with get $values $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- with (index . 0).Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* list OWN GIVEN: both lists of variables, each name once, as the user gives it. */}}
{{- define "headrace.env" -}}
{{- $given := index . 1 | default list -}}
{{- $names := list -}}
{{- range $given }}{{ $names = append $names .name }}{{ end -}}
{{- $all := list -}}
{{- range index . 0 }}{{ if not (has .name $names) }}{{ $all = append $all . }}{{ end }}{{ end -}}
{{- concat $all $given | toYaml -}}
{{- end -}}

{{/* dict of url, region, endpoint and existingSecret; urlName: what a bucket's variables are. */}}
{{- define "headrace.bucket" -}}
- {name: {{ .urlName }}, value: {{ .bucket.url | quote }}}
{{- with .bucket.region }}
- {name: AWS_REGION, value: {{ . | quote }}}
{{- end }}
{{- with .bucket.endpoint }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- with .bucket.existingSecret }}
- {name: AWS_ACCESS_KEY_ID, valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: access-key-id}}}
- {name: AWS_SECRET_ACCESS_KEY, valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: secret-access-key}}}
{{- end }}
{{- end -}}

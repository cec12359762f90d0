package simrules

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/core/strict"
	"github.com/wherry-node/wherry/internal/core/yamldoc"
)

var kwokVersion = regexp.MustCompile(`(?m)^["']?apiVersion["']?\s*:\s*["']?kwok\.x-k8s\.io/|"apiVersion"\s*:\s*"kwok\.x-k8s\.io/`)

// isKWOK reports whether a document is of KWOK's API.
func isKWOK(data []byte) bool { return kwokVersion.Match(data) }

// kwok holds a document of KWOK's API and the rules that have been made of it so far.
type kwok struct {
	*yamldoc.Document
	read func(string) ([]byte, error)
	// The document as plain values and as JSON, its kind and the version of its API.
	plain         any
	asJSON        []byte
	kind, version string
	rules         Rules
}

// elsewhere maps each kind of document that has no effect on simulated containers to the advice what to use instead.
var elsewhere = map[string]string{
	"Metric":               "each node serves its own metrics, of what its containers use",
	"Exec":                 "a simulated container runs no program: write the answers in a document of kind SimulationRules, field exec",
	"ClusterExec":          "a simulated container runs no program: write the answers in a document of kind SimulationRules, field exec",
	"Attach":               "attach shows what a simulated container writes: say that in a document Logs, or in one of kind SimulationRules, field log",
	"ClusterAttach":        "attach shows what a simulated container writes: say that in a document Logs, or in one of kind SimulationRules, field log",
	"PortForward":          "a port of a simulated pod has an HTTP server: write the answers in a document of kind SimulationRules, field http",
	"ClusterPortForward":   "a port of a simulated pod has an HTTP server: write the answers in a document of kind SimulationRules, field http",
	"KwokConfiguration":    "use the options of wherry fleet",
	"KwokctlConfiguration": "use the options of wherry fleet",
	"KwokctlResource":      "use a template of nodes (--template), and kubectl for other objects",
}

// parseKWOK makes rules of a document of KWOK's API. What it cannot map becomes an entry of Ignored. A document that is wrong by itself is an error.
func parseKWOK(d *yamldoc.Document, data []byte, read func(string) ([]byte, error)) (*Rules, error) {
	k := &kwok{Document: d, read: read}
	if err := k.parse(data); err != nil {
		return nil, err
	}
	switch why := elsewhere[k.kind]; {
	case why != "":
		k.ignore("kind", why)
	case k.kind == "Stage":
		k.stage()
	case k.kind == "ResourceUsage" || k.kind == "ClusterResourceUsage":
		k.usage()
	case k.kind == "Logs" || k.kind == "ClusterLogs":
		k.logs()
	default:
		k.Bad("kind", fmt.Sprintf("%q is no kind of %s that is known here", k.kind, k.version))
	}
	for i := range k.rules.Containers {
		k.rules.Containers[i].Do.check(func(field, text string) { k.Bad("spec", field+": "+text) })
	}
	if len(d.Errs) > 0 {
		return nil, errors.Join(d.Errs...)
	}
	return &k.rules, nil
}

// ignore notes that the field at path has no effect.
func (k *kwok) ignore(path, why string) {
	if len(k.rules.Ignored) < maxRules {
		k.rules.Ignored = append(k.rules.Ignored, fmt.Sprintf("%s: %s: %s has no effect: %s", k.At(path), k.kind, path, why))
	}
}

// matches returns the pods of a document: the one with its name, or those that its selector selects.
func (k *kwok) matches(meta *metav1.ObjectMeta, sel *kwokSelector) []Match {
	if !strings.HasPrefix(k.kind, "Cluster") {
		return []Match{{Namespace: cmp.Or(meta.Namespace, "default"), Pod: meta.Name}}
	}
	if sel == nil {
		sel = &kwokSelector{}
	}
	namespaces, names := sel.MatchNamespaces, sel.MatchNames
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	if len(names) == 0 {
		names = []string{""}
	}
	var out []Match
	for _, ns := range namespaces {
		for _, name := range names {
			if len(out) < maxRules {
				out = append(out, Match{Namespace: ns, Pod: name})
			}
		}
	}
	return out
}

// add adds a rule for each of the pods and containers.
func (k *kwok) add(pods []Match, containers []string, do *Do) {
	if len(containers) == 0 {
		containers = []string{""}
	}
	for _, m := range pods {
		for _, c := range containers {
			if len(k.rules.Containers) > maxRules {
				return
			}
			m.Container = c
			k.rules.Containers = append(k.rules.Containers, Rule{Match: m, Do: *do})
		}
	}
}

// usage reads a ResourceUsage or ClusterResourceUsage.
func (k *kwok) usage() {
	var f kwokFile[kwokUsage]
	if !k.decode(&f) {
		return
	}
	pods := k.matches(&f.Metadata, f.Spec.Selector)
	for i, u := range f.Spec.Usages {
		var do Do
		for _, name := range slices.Sorted(maps.Keys(u.Usage)) {
			v := u.Usage[name]
			path := fmt.Sprintf("spec.usages[%d].usage.%s", i, name)
			to := map[string]**Usage{"cpu": &do.CPU, "memory": &do.Memory}[name]
			switch {
			case to == nil:
				k.ignore(path, "a simulated container uses cpu and memory")
			case v.Value != nil:
				*to = &Usage{Value: *v.Value}
			default:
				if *to = celUsage(v.Expression); *to == nil {
					k.ignore(path+".expression", "only Quantity(\"...\") and an annotation with a default are read; use a usage of a SimulationRules document")
				}
			}
		}
		if do.CPU != nil || do.Memory != nil {
			k.add(pods, u.Containers, &do)
		}
	}
}

var (
	celConstant   = regexp.MustCompile(`^Quantity\("([^"]+)"\)$`)
	celAnnotation = regexp.MustCompile(`^["']([^"']+)["'] in pod\.metadata\.annotations \? Quantity\(pod\.metadata\.annotations\[["']([^"']+)["']\]\) : Quantity\(["']([^"']+)["']\)$`)
)

// celUsage reads a CEL expression of one of the two forms that KWOK's own files have. For any other expression it returns nil.
func celUsage(expression string) *Usage {
	text := strings.Join(strings.Fields(expression), " ")
	var u Usage
	value := ""
	if m := celConstant.FindStringSubmatch(text); m != nil {
		value = m[1]
	} else if m := celAnnotation.FindStringSubmatch(text); m != nil && m[1] == m[2] {
		u.Annotation, value = m[1], m[3]
	}
	q, err := strict.ParseQuantity(value)
	if err != nil {
		return nil
	}
	u.Value = q
	return &u
}

// logs reads a Logs or ClusterLogs: each container has the lines of a file.
func (k *kwok) logs() {
	var f kwokFile[kwokLogs]
	if !k.decode(&f) {
		return
	}
	pods := k.matches(&f.Metadata, f.Spec.Selector)
	for i, l := range f.Spec.Logs {
		path := fmt.Sprintf("spec.logs[%d].", i)
		if l.PreviousLogsFile != "" {
			k.ignore(path+"previousLogsFile", "the log of an attempt before is what that attempt has written")
		}
		if l.Follow {
			k.ignore(path+"follow", "the file is read once, before the fleet starts")
		}
		if l.LogsFile == "" || k.read == nil {
			k.ignore(path+"logsFile", "no file can be read")
			continue
		}
		data, err := k.read(l.LogsFile)
		switch {
		case err != nil:
			k.Bad(path+"logsFile", err.Error())
		case len(data) > MaxFile:
			k.Bad(path+"logsFile", fmt.Sprintf("%s has more than %d bytes", l.LogsFile, MaxFile))
		default:
			k.add(pods, l.Containers, &Do{Log: Log{Lines: criLines(data)}})
		}
	}
}

// criLines reads the lines of a log in the format of container runtimes ("2026-01-02T15:04:05Z stdout F text"), with the times between them. A line of
// another format is text, written at the time of the line before.
func criLines(data []byte) (out []Line) {
	var last time.Time
	for one := range bytes.SplitSeq(bytes.TrimRight(data, "\n"), []byte("\n")) {
		line := Line{Text: string(one)}
		if parts := bytes.SplitN(one, []byte(" "), 4); len(parts) == 4 && (string(parts[1]) == "stdout" || string(parts[1]) == "stderr") {
			if at, err := time.Parse(time.RFC3339Nano, string(parts[0])); err == nil {
				line = Line{Text: string(parts[3]), Stderr: string(parts[1]) == "stderr"}
				if !last.IsZero() && at.After(last) {
					line.After = metav1.Duration{Duration: min(at.Sub(last), maxTime)}
				}
				last = at
			}
		}
		out = append(out, line)
	}
	return out
}

var (
	stagePhase  = regexp.MustCompile(`(?m)^\s*"?phase"?:\s*"?(Pending|Running|Succeeded|Failed)"?\s*,?$`)
	stageCode   = regexp.MustCompile(`(?m)^\s*"?exitCode"?:\s*"?(\d{1,3})"?\s*,?$`)
	stageReason = regexp.MustCompile(`(?m)terminated"?:[^}]*?\n\s*"?reason"?:\s*"?([A-Za-z]+)"?\s*,?$`)
	labelKey    = regexp.MustCompile(`^\.metadata\.labels\[["']([^"']+)["']\]$`)
)

// stage reads a Stage for pods, and makes a rule of it if the Stage does one of these things: it ends the containers (phase Succeeded or
// Failed), it lets them start after a delay (phase Running), or it deletes a pod whose deletion has begun; its delay is then the time
// that the containers need to stop.
func (k *kwok) stage() {
	var f kwokFile[kwokStage]
	if !k.decode(&f) {
		return
	}
	s := &f.Spec
	if kind := s.ResourceRef.Kind; kind != "Pod" {
		k.ignore("spec.resourceRef.kind", fmt.Sprintf("the agent itself keeps the status of a %s: use a scenario or a template", cmp.Or(kind, "resource")))
		return
	}
	match, deleted, ok := k.stageSelector(s)
	if !ok {
		return
	}
	s.unmapped(k.ignore)
	template, phase := s.template(k.ignore), ""
	if m := stagePhase.FindStringSubmatch(template); m != nil {
		phase = m[1]
	}
	after, jitter := s.delay()
	var do Do
	switch {
	case s.Next.Delete && deleted:
		do.StopAfter = after.String()
	case s.Next.Delete:
		k.ignore("spec.next.delete", "an agent deletes only a pod whose deletion has begun")
		return
	case phase == "Succeeded" || phase == "Failed":
		do.Exits = []Exit{stageExit(phase, template, after, jitter)}
	case phase == "Running":
		do.StartAfter = metav1.Duration{Duration: after}
	default:
		k.ignore("spec.next", "no phase Running, Succeeded or Failed is found in it; the agent itself keeps the rest of a pod's status")
		return
	}
	if len(do.Exits) == 0 && jitter > 0 {
		k.ignore("spec.delay.jitterDurationMilliseconds", fmt.Sprintf("only an end of containers varies: this takes %s, the middle of both times", after))
	}
	k.add([]Match{match}, nil, &do)
}

// delay returns the delay of a stage as a time that varies evenly by up to jitter. KWOK's delay lies between two times.
func (s *kwokStage) delay() (after, jitter time.Duration) {
	const most = int64(maxTime / time.Millisecond)
	from := min(max(0, s.Delay.DurationMilliseconds), most)
	to := from
	if j := s.Delay.JitterDurationMilliseconds; j != nil {
		to = min(max(from, *j), most)
	}
	return time.Duration(from+to) * time.Millisecond / 2, time.Duration(to-from) * time.Millisecond / 2
}

func stageExit(phase, template string, after, jitter time.Duration) Exit {
	e := Exit{After: metav1.Duration{Duration: after}, Jitter: metav1.Duration{Duration: jitter}}
	if phase == "Failed" {
		e.Code = 1
	}
	if m := stageCode.FindStringSubmatch(template); m != nil {
		if n, err := strconv.ParseInt(m[1], 10, 32); err == nil {
			e.Code = int32(min(n, 255)) //nolint:gosec // at most three digits
		}
	}
	if m := stageReason.FindStringSubmatch(template); m != nil {
		e.Reason = m[1]
	}
	return e
}

// stageSelector returns the pods of a stage, and whether it is for those whose deletion has begun. ok is false if a condition cannot be mapped, so that
// the stage would apply to too many pods.
func (k *kwok) stageSelector(s *kwokStage) (m Match, deleted, ok bool) {
	sel := &s.Selector
	m.Labels = map[string]string{}
	maps.Copy(m.Labels, sel.MatchLabels)
	if len(sel.MatchAnnotations) > 0 {
		k.ignore("spec.selector.matchAnnotations", "rules match labels; the whole stage is left out")
		return m, false, false
	}
	for i, e := range sel.MatchExpressions {
		label := labelKey.FindStringSubmatch(e.Key)
		switch {
		case e.Key == ".metadata.deletionTimestamp" && (e.Operator == "Exists" || e.Operator == "DoesNotExist"):
			deleted = e.Operator == "Exists"
		case e.Key == ".status.phase" || strings.HasPrefix(e.Key, ".status.conditions") || e.Key == ".status.podIP" || e.Key == ".metadata.finalizers.[]":
			// The order of the stages of a pod follows from the agent.
		case label != nil && e.Operator == "Exists":
			m.Labels[label[1]] = "*"
		case label != nil && e.Operator == "In" && len(e.Values) == 1:
			m.Labels[label[1]] = e.Values[0]
		case e.Key == ".metadata.ownerReferences.[].kind" && e.Operator == "In" && slices.Equal(e.Values, []string{"Job"}):
			m.Labels["batch.kubernetes.io/job-name"] = "*"
		default:
			k.ignore(fmt.Sprintf("spec.selector.matchExpressions[%d]", i), "rules cannot match "+e.Key+" "+e.Operator+"; the whole stage is left out")
			return m, false, false
		}
	}
	return m, deleted, true
}

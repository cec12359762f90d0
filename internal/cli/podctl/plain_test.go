package podctl

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wherry-node/wherry/internal/cli/plain"
	"github.com/wherry-node/wherry/internal/core/timeline"
	"github.com/wherry-node/wherry/internal/core/why"
)

// hostile is text that a container may write into a message, and that a terminal must not get.
const hostile = "\x1b]0;title\a\x1b[2Jgone\r\nfake row\x9b31m\u202eevil\x00\u2028"

// unsafe returns what in s may still control a terminal: a control character, or a note that s is not UTF-8. It returns "" if there is
// nothing.
func unsafe(s string) string {
	for _, r := range s {
		if r != '\n' && r != '\t' && plain.Controls(r) {
			return string(r)
		}
	}
	if !utf8.ValidString(s) {
		return "bytes that are no UTF-8"
	}
	return ""
}

// Text of a container, a tenant or a runtime may contain control characters. No command passes them on to the user's
// terminal.
func TestCVE202125743EscapeSequencesDoNotReachTheTerminal(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := shownPod("web", func(p *v1.Pod) {
		p.Name, p.Namespace, p.Status.Reason, p.Status.PodIP = hostile, hostile, hostile, hostile
		p.Spec.Containers[0].Image = hostile
		p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: hostile, State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1, Reason: hostile, Message: hostile}}}}
	})
	event := v1.Event{
		InvolvedObject: v1.ObjectReference{Kind: hostile, Name: hostile, FieldPath: "spec.containers{" + hostile + "}"}, Type: hostile,
		Reason: hostile, Message: hostile, LastTimestamp: metav1.Time{Time: now}, Count: 1,
	}
	for name, write := range map[string]func(b *bytes.Buffer) error{
		"ps":      func(b *bytes.Buffer) error { return writePods(b, []v1.Pod{p}, now, true) },
		"ps name": func(b *bytes.Buffer) error { return printPods(b, b, []v1.Pod{p}, "name") },
		"ps json": func(b *bytes.Buffer) error { return printPods(b, b, []v1.Pod{p}, "json") },
		"ps yaml": func(b *bytes.Buffer) error { return printPods(b, b, []v1.Pod{p}, "yaml") },
		"events":  func(b *bytes.Buffer) error { return writeEvents(b, []v1.Event{event}, now, true) },
		"explain": func(b *bytes.Buffer) error {
			return writeRecord(b, explanation{Records: []timeline.Record{{At: now, What: hostile, Why: hostile, Error: hostile}}})
		},
		"answer": func(b *bytes.Buffer) error {
			return writeAnswer(b, explanation{Name: hostile, Answer: why.Answer{
				Line: hostile, Next: hostile, Facts: []string{hostile, "last words: " + hostile}, Do: []string{hostile},
			}}, now)
		},
		"run": func(b *bytes.Buffer) error {
			r := &runner{Run: &Run{}, say: newLineWriter(b), seen: map[string]string{}}
			r.sayPod(&p)
			r.progress("pod/%s %s: %s", p.Name, event.Reason, event.Message)
			return nil
		},
		"error": func(b *bytes.Buffer) error { SayError(b, &answerError{status: 500, text: hostile}); return nil },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if bad := unsafe(b.String()); bad != "" {
			t.Errorf("%s passes on %q: %q", name, bad, b.String())
		}
		if !strings.Contains(b.String(), "title") || strings.Contains(b.String(), "\nfake row") && name != "error" {
			t.Errorf("%s: the text is lost, or makes a row of its own: %q", name, b.String())
		}
	}
}
